#include "entry.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "access.h"
#include "facts.h"
#include "frames.h"
#include "kernel.h"
#include "program.h"
#include "reason.h"
#include "rights.h"
#include "table.h"
#include "worker.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum {
    REQUEST_SECONDS = 10,
    CHUNK = 16384,
    /* The interval for checking the container on kernels without pidfd (before 5.3). */
    CHECK_MS = 500,
    WRONG_USE = 2,
};

static gid_t *groups_in(const struct json *numbers)
{
    gid_t *groups = allocate((numbers->count + 1) * sizeof *groups);
    for (size_t index = 0; index < numbers->count; index++)
        groups[index] = (gid_t)numbers->items[index].number;
    return groups;
}

_Noreturn void serve_access_from_facts(int descriptor)
{
    struct json facts;
    if (!read_object(&facts, descriptor))
        _exit(WRONG_USE);
    const struct json *groups = json_get(&facts, "groups");
    const struct sandbox sandbox = {
        .env = json_get(&facts, "env"),
        .working_dir = json_text(&facts, "workingDir"),
        .uid = (uid_t)json_number(&facts, "uid"),
        .gid = (gid_t)json_number(&facts, "gid"),
        .groups = groups_in(groups),
        .group_count = groups->count,
        .sets_ids = json_is_true(&facts, "setsIds"),
        .memory_mb = json_number(&facts, "memoryMb"),
        .most_open_files = json_number(&facts, "maxOpenFiles"),
        .most_processes = json_number(&facts, "maxProcesses"),
        .has_pid = json_is_true(&facts, "hasPid"),
        .has_user = json_is_true(&facts, "hasUser"),
        .has_capabilities = json_is_true(&facts, "hasCapabilities"),
        .has_memory_group = json_is_true(&facts, "hasMemoryGroup"),
        .has_pids_group = json_is_true(&facts, "hasPidsGroup"),
        .accounts_namespace = -1,
    };
    int connection = (int)json_number(&facts, "connection");
    const char *kind = json_text(&facts, "kind");
    if (strcmp(kind, "command") == 0)
        serve_command(connection, &sandbox);
    if (strcmp(kind, PROCESSES_NAME) == 0)
        run_table(connection, &sandbox);
    if (access_kind_of(kind) == ACCESS_KINDS)
        _exit(WRONG_USE);
    serve_access(connection, &sandbox, access_kind_of(kind));
}

/* Containers */

static pid_t container;
/* The pidfd of the container's first process, or -1. */
static int container_end;

/* Ends this process with the container: otherwise open files would keep the container's file system alive. */
static void *end_with_container(void *unused)
{
    struct pollfd wait = {container_end, POLLIN, 0};
    (void)unused;
    if (container_end >= 0) {
        while (poll(&wait, 1, -1) <= 0)
            ;
        _exit(0);
    }
    while (kill(container, 0) == 0 || errno != ESRCH)
        poll(NULL, 0, CHECK_MS);
    _exit(0);
}

_Noreturn static void refuse_entry(int connection, const char *what)
{
    refuse(connection, "unavailable", "the sandbox cannot be entered: %s: %s", what, reason_of(errno));
    _exit(0);
}

_Noreturn static void refuse_as_ended(int connection)
{
    refuse(connection, "unavailable", "the sandbox has ended");
    _exit(0);
}

static int open_of(const char *file)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)container, file);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Reads a file of the container's first process. The text ends with a NUL. False if the process is gone. */
static bool read_of(const char *file, struct buffer *text)
{
    int descriptor = open_of(file);
    ssize_t count = -1;
    while (descriptor >= 0 && (count = read(descriptor, buffer_room(text, CHUNK), CHUNK - 1)) > 0)
        text->size += (size_t)count;
    if (descriptor >= 0)
        close(descriptor);
    buffer_add(text, "", 1);
    return count == 0;
}

/* Returns the values of a line of the `status` file. */
static const char *line_of(const char *status, const char *name)
{
    const char *line = strstr(status, name);
    return line == NULL ? "" : line + strlen(name);
}

/* Becomes the container's user without capabilities. User ids are those of this machine. */
static bool become_user_of(const char *status)
{
    unsigned uid, gid;
    size_t count = 0;
    if (sscanf(line_of(status, "\nUid:"), "%*u %u", &uid) != 1 || sscanf(line_of(status, "\nGid:"), "%*u %u", &gid) != 1) {
        errno = EINVAL;
        return false;
    }
    const char *at = line_of(status, "\nGroups:");
    gid_t *groups = allocate((strcspn(at, "\n") + 1) * sizeof *groups);
    for (at += strspn(at, " \t"); *at >= '0' && *at <= '9'; at += strspn(at, " \t"))
        groups[count++] = (gid_t)strtoul(at, (char **)&at, 10);
    bool is_good = drop_privileges(true, true) && syscall(SYS_setgroups, count, groups) == 0 &&
                   syscall(SYS_setresgid, gid, gid, gid) == 0 && syscall(SYS_setresuid, uid, uid, uid) == 0 && keep_capabilities(0);
    free(groups);
    return is_good;
}

/* Enters a namespace of the container with the rights of this process. */
static void enter_namespace(int connection, const char *id, const char *namespace)
{
    struct buffer groups = {0};
    int entered = open_of(namespace);
    if (entered < 0 || !read_of("cgroup", &groups))
        refuse_as_ended(connection);
    /* The pid may belong to another process by now. */
    if (id[0] == '\0' || strstr(groups.data, id) == NULL)
        refuse_as_ended(connection);
    if (setns(entered, 0) < 0)
        refuse_entry(connection, "setns");
    close(entered);
    buffer_free(&groups);
}

/*
 * Makes the directory that the container shares with the service read-only. Its root could write there
 * otherwise, on a disk of the host. No code has run inside yet.
 */
_Noreturn static void seal(int connection, const char *id, const struct json *request)
{
    enter_namespace(connection, id, "ns/mnt");
    if (mount(NULL, json_text(request, "path"), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
        refuse_entry(connection, "its directory cannot be made read-only");
    send_format(connection, "{\"ok\":true}");
    _exit(0);
}

/*
 * Enters a namespace of the container as its user. The pid namespace is left out, so that no process inside
 * sees this one.
 */
static void enter(int connection, const char *id, const char *namespace)
{
    struct buffer status = {0};
    if (!read_of("status", &status))
        refuse_as_ended(connection);
    enter_namespace(connection, id, namespace);
    if (!become_user_of(status.data))
        refuse_entry(connection, "changing to its user failed");
    /* Processes of the same user cannot inspect this process, on the host or inside. */
    forbid_inspection();
    umask(022);
    buffer_free(&status);
}

/*
 * Finds for whom a request works. A container has the account of its user only, with the name and home of its
 * own list of users.
 */
static struct owner owner_of(int connection, const struct json *request)
{
    const struct json *asked = json_get(request, "user");
    struct owner owner = {.uid = getuid(), .gid = getgid()};
    if (asked->kind != JSON_STRING)
        return owner;
    const struct listed_user user = find_listed_user(owner.uid);
    if (asked->size > 0 && (json_has_nul(asked) || strcmp(asked->text, user.name) != 0)) {
        refuse(connection, "unauthenticated", "there is no user %s in the sandbox", asked->text);
        _exit(0);
    }
    owner.home = user.home;
    return owner;
}

_Noreturn void serve_container(int connection)
{
    static struct buffer held[2];
    struct json place, request;
    pthread_t watch;
    if (!keep_only(connection, -1))
        refuse_entry(connection, "its descriptors cannot be opened");
    set_timeout(connection, REQUEST_SECONDS);
    if (!read_message(connection, LARGEST_FRAME, &held[0], &place) || !read_message(connection, LARGEST_FRAME, &held[1], &request))
        _exit(0);
    const char *way = json_text(&place, "way");
    bool is_dial = strcmp(way, "dial") == 0;
    container = (pid_t)json_number(&place, "pid");
    if (container <= 0)
        refuse_as_ended(connection);
    container_end = (int)syscall(SYS_pidfd_open, container, 0);
    if (strcmp(way, "seal") == 0)
        seal(connection, json_text(&place, "container"), &request);
    enter(connection, json_text(&place, "container"), is_dial ? "ns/net" : "ns/mnt");
    if (pthread_create(&watch, NULL, end_with_container, NULL) != 0)
        refuse_entry(connection, "its end cannot be watched");
    enter_directory(json_text(&place, "workingDir"));
    if (is_dial)
        serve_dial(connection, &request);
    if (strcmp(way, "files") == 0)
        serve_files(connection, &request);
    struct owner owner = owner_of(connection, &request);
    if (strcmp(way, "watch") == 0)
        serve_watch(connection, &request, &owner);
    serve_account_files(connection, &request, &owner);
}
