/* The order of steps matters: the host's files are visible until the start enters the root. */
#include "making.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../fork/fork.h"
#include "frames.h"
#include "groups.h"
#include "init.h"
#include "kernel.h"
#include "network.h"
#include "reason.h"
#include "rights.h"
#include "root.h"

enum {
    BACKLOG = 64,
    LARGEST_STAT = 1024,
    START_TIME_FIELD = 20,
    MOST_PIDS = 1 << 22,
    /* Services in containers each count their processes from 1. */
    PID_NAMESPACES = 32,
};

/* The facts of all workers, the facts of this one, and the facts for the start. */
static struct json facts, own;
static struct buffer told;
static int control;
/* The directory that contains the worker's, and its name; -1 before it is made. */
static int workers = -1;
static const char *name;

static int own_number(const char *key)
{
    return (int)json_number(&own, key);
}

/* Failing */

static void report_failure(const char *layer, const char *sentence, const char *reason)
{
    struct buffer message = {0};
    buffer_format(&message, "{\"failed\":");
    json_write_bytes(&message, sentence);
    buffer_format(&message, ",\"layer\":\"%s\",\"reason\":", layer);
    json_write_bytes(&message, reason);
    buffer_add(&message, "}", 1);
    (void)!send(control, message.data, message.size, MSG_NOSIGNAL);
    buffer_free(&message);
}

static void remove_files(void)
{
    const char *const files[] = {SOCKET_NAME, CONTROL_NAME, STATE_NAME};
    int directory = workers < 0 ? -1 : openat(workers, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return;
    for (size_t index = 0; index < sizeof files / sizeof *files; index++)
        unlinkat(directory, files[index], 0);
    unlinkat(workers, name, AT_REMOVEDIR);
}

/*
 * Reports the failure to the orderer, and to a control plane that already waits for this worker. `layer`
 * (`layers.py`) names the cause; errno has details.
 */
__attribute__((format(printf, 2, 3))) _Noreturn static void fail(const char *layer, const char *format, ...)
{
    struct buffer what = {0}, sentence = {0};
    int number = errno;
    va_list arguments;
    va_start(arguments, format);
    buffer_format_list(&what, format, arguments);
    va_end(arguments);
    buffer_format(&sentence, number == 0 ? "the sandbox cannot be made: %s" : "the sandbox cannot be made: %s: %s", what.data, reason_of(number));
    /* The user's process holds the other ends of pairs, on which peers would wait. */
    if (json_get(&own, "user")->kind == JSON_NUMBER)
        kill(own_number("user"), SIGKILL);
    remove_files();
    report_failure(layer, sentence.data, number == 0 ? what.data : reason_of(number));
    int connection = take_connection(control);
    if (connection >= 0)
        refuse(connection, code_of(number), "%s", sentence.data);
    _exit(1);
}

/* Reading */

static void read_facts(int descriptor, char *text)
{
    static struct buffer held;
    struct stat about;
    if (fstat(descriptor, &about) < 0)
        _exit(1);
    /* All workers share this open file, so its offset cannot be used. */
    char *room = buffer_room(&held, (size_t)about.st_size + 1);
    ssize_t count = pread(descriptor, room, (size_t)about.st_size, 0);
    close(descriptor);
    if (count != about.st_size)
        _exit(1);
    held.size = (size_t)count;
    /*
     * Copies the facts first, because parsing overwrites the text. The facts for the start begin with them.
     */
    buffer_add(&told, held.data, held.size - 1);
    if (!json_read(&facts, held.data, held.size) || !json_read(&own, text, strlen(text)))
        _exit(1);
}

static bool has(const char *layer)
{
    return json_is_true(json_get(&facts, "layers"), layer);
}

static void add_number(const char *key, long long number)
{
    buffer_format(&told, ",\"%s\":%lld", key, number);
}

/* Its directory on the host */

static int open_directory(int parent, const char *path)
{
    return openat(parent, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Through the descriptor, so that any path of a data directory is short enough. */
static bool listen_at(int listener, int directory, const char *file)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory, file);
    return bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, BACKLOG) == 0;
}

static int make_directory(void)
{
    int instances = open_directory(AT_FDCWD, json_text(&facts, "instancesPath")), runtime = own_number("runtimeListener");
    workers = open_directory(AT_FDCWD, json_text(&facts, "workersPath"));
    if (workers < 0 || instances < 0 || mkdirat(workers, name, 0700) < 0)
        fail("", "its directory");
    /* Few files: disk inodes dominate the cost of a worker's files, which are a tenth of its total cost. */
    int directory = open_directory(workers, name), listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (directory < 0 || listener < 0 || !listen_at(runtime, directory, SOCKET_NAME) || !listen_at(listener, directory, CONTROL_NAME))
        fail("", "its sockets");
    add_number("directory", directory);
    add_number("workers", workers);
    add_number("instances", instances);
    add_number("listener", listener);
    add_number("runtimeListener", runtime);
    return directory;
}

/* Uses the host's pid: the visible /proc is still the host's. */

static int pid_on_host(void)
{
    char text[16] = {0};
    if (readlink("/proc/self", text, sizeof text - 1) < 0)
        fail("", "/proc/self");
    return atoi(text);
}

static long long start_time(void)
{
    char text[LARGEST_STAT];
    int descriptor = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t count = descriptor < 0 ? -1 : read(descriptor, text, sizeof text - 1);
    close(descriptor);
    text[count > 0 ? count : 0] = '\0';
    /* Skips the name, which may contain any character. */
    char *field = strrchr(text, ')');
    for (int index = 0; index < START_TIME_FIELD && field != NULL; index++)
        field = strchr(field + 1, ' ');
    if (field == NULL)
        fail("", "/proc/self/stat");
    return atoll(field);
}

/* Its network */

/* Returns the last output of the program that forwards packets, as a part of a sentence. */
_Noreturn static void fail_with_words(const char *program, struct buffer *words)
{
    struct buffer said = {0};
    buffer_add(words, "", 1);
    for (char *line = strtok(words->data, "\n"); line != NULL; line = strtok(NULL, "\n"))
        buffer_format(&said, "%s%s", said.size > 0 ? "; " : "", line);
    errno = 0;
    fail("network", "%s has ended: %s", program, said.size > 0 ? said.data : "without a word");
}

static bool enter_network(int pid, char address[ADDRESS])
{
    const struct json *networks = json_get(&facts, "networks");
    int kind = own_number("network"), teller = own_number("teller");
    struct buffer why = {0};
    bool is_there = kind == HOST_NETWORK;
    if (kind == NO_NETWORK)
        is_there = begin_loopback();
    else if (kind == OWN_NETWORK && teller < 0)
        is_there = tie_network(networks, own_number("outside"), address);
    else if (kind == OWN_NETWORK)
        is_there = await_passage(networks, pid, teller, own_number("networkWords"), &why);
    if (!is_there && errno == EIO && teller >= 0)
        fail_with_words(json_text(networks, "program"), &why);
    if (!is_there)
        fail(kind == NO_NETWORK ? "net" : "network", "its network");
    buffer_free(&why);
    return kind == OWN_NETWORK;
}

/* The user's process waits in `become_user` of `runtimes/native/fork`. */

static bool send_number(int connection, int number, int descriptor)
{
    return send_with(connection, &number, sizeof number, &descriptor, descriptor >= 0 ? 1 : 0);
}

/*
 * Receives the user namespace of the process and its directory in /proc. False with its errno if it could not
 * make one.
 */
static bool receive_namespace(int connection, int given[2], int *number)
{
    int count = receive_with(connection, number, sizeof *number, given, 2);
    if (count < 0)
        *number = EPIPE;
    return count == 2 && *number == 0;
}

/* Maps every id to itself: files, signals and sockets keep their owners. */
static bool write_map(int about, const char *file)
{
    static const char every_id[] = "0 0 4294967295";
    int map = openat(about, file, O_WRONLY | O_CLOEXEC);
    bool is_written = map >= 0 && write(map, every_id, sizeof every_id - 1) > 0;
    int number = errno;
    close(map);
    errno = number;
    return is_written;
}

/* Returns a uid that is unique while this process exists. */
static unsigned owner_of_limits(int pid)
{
    struct stat about;
    if (stat("/proc/self/ns/pid", &about) < 0)
        fail("user_limits", "/proc/self/ns/pid");
    return FIRST_OWNER + (unsigned)(about.st_ino % PID_NAMESPACES * MOST_PIDS) + (unsigned)pid % MOST_PIDS;
}

/*
 * Continues the user's process, in a namespace with limits of its own if possible. `lack`: why that is
 * impossible, or NULL.
 */
static void release_user(int pid, const char *root, const char **lack)
{
    char null[4096];
    int orders = own_number("orders"), number, given[2];
    int owner = has("user_limits") ? (int)owner_of_limits(pid) : -1;
    /* A read-only descriptor of the sandbox's own namespace. */
    snprintf(null, sizeof null, "%s/dev/null", root);
    int nothing = open(null, O_RDONLY | O_CLOEXEC);
    if (nothing < 0 || !send_number(orders, owner, nothing))
        fail("", "the user's process");
    close(nothing);
    *lack = NULL;
    if (owner < 0)
        return;
    if (!receive_namespace(orders, given, &number)) {
        if (number == EPIPE)
            fail("user_limits", "the user's process has ended");
        *lack = reason_of(number);
        return;
    }
    if (!write_map(given[1], "uid_map") || !write_map(given[1], "gid_map") || !send_number(orders, 0, -1))
        fail("user_limits", "the ids of its user namespace");
    close(given[1]);
    add_number("limitsNamespace", given[0]);
    add_number("limitsOwner", owner);
}

static void write_state(int directory, int pid, const char *address, bool has_own_network, bool lacks_limits)
{
    struct buffer state = {0};
    const struct json *groups = json_get(&facts, "groups");
    buffer_format(&state, "{\"pid\":%d,\"startTime\":%lld,\"bootId\":\"%s\",\"groups\":{", pid, start_time(), json_text(&facts, "bootId"));
    for (size_t index = 0; index < groups->count; index++) {
        struct buffer path = {0};
        const struct json *group = &groups->items[index];
        buffer_format(&path, "%s/%s", json_text(group, "parent"), name);
        buffer_format(&state, "%s\"%s\":", index ? "," : "", json_text(group, "controller"));
        json_write_bytes(&state, path.data);
        buffer_free(&path);
    }
    buffer_format(&state, "},\"groupVersions\":{");
    for (size_t index = 0; index < groups->count; index++)
        buffer_format(&state, "%s\"%s\":%d", index ? "," : "", json_text(&groups->items[index], "controller"),
                      (int)json_number(&groups->items[index], "version"));
    /* Other versions read this file, so the name of a zygote keeps its old form on the disk. */
    buffer_format(&state, "},\"launcher\":\"%s\",\"address\":", json_text(&facts, "zygote"));
    buffer_format(&state, address[0] != '\0' ? "\"%s\"" : "null", address);
    buffer_format(&state, ",\"hasOwnNetwork\":%s,\"lacks\":[%s]}", has_own_network ? "true" : "false", lacks_limits ? "\"user_limits\"" : "");
    /* As text, because it is forwarded. */
    buffer_format(&told, ",\"state\":");
    json_write_bytes(&told, state.data);
    memset(buffer_room(&state, ROOM_FOR_ENDING), ' ', ROOM_FOR_ENDING);
    state.size += ROOM_FOR_ENDING;
    int file = openat(directory, STATE_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || write(file, state.data, state.size) != (ssize_t)state.size)
        fail("", "%s", STATE_NAME);
    close(file);
    buffer_free(&state);
}

/* Tries the layers that the start will use, to find whether they work here. */
_Noreturn static void try_layers(const struct worker *worker)
{
    const struct sandbox *sandbox = &worker->sandbox;
    const char *root = json_text(worker->facts, "root");
    if (root[0] != '\0' && !enter_root(root))
        fail("mount", "its root");
    if (worker->limits_namespace >= 0 &&
        (!enter_namespace_of((uid_t)json_number(worker->facts, "limitsOwner"), worker->limits_namespace) ||
         !give_up_privileges(sandbox, json_is_true(worker->facts, "hasNoNewPrivs"))))
        fail("user_limits", "its limits");
    if (!keep_rights_of_init(sandbox))
        fail("capabilities", "its capabilities");
    if (!filter_as_told(worker->facts, "filter"))
        fail("seccomp", "its filter");
    remove_files();
    (void)!send(control, "{\"ready\":0}", 11, MSG_NOSIGNAL);
    _exit(0);
}

void make_worker(struct worker *worker, int descriptor, char *text)
{
    char address[ADDRESS] = "";
    const char *what, *lack;
    read_facts(descriptor, text);
    name = json_text(&own, "name");
    control = own_number("control");
    fcntl(control, F_SETFD, FD_CLOEXEC);
    if (json_get(&own, "failed")->kind == JSON_STRING) {
        errno = own_number("errno");
        fail(json_text(&own, "layer"), "%s", json_text(&own, "failed"));
    }
    if (!has("pid"))
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    int pid = pid_on_host(), directory = make_directory();
    bool has_own_network = enter_network(pid, address);
    /* Before the root is made: the groups are unreachable afterwards. */
    add_limit_files(&told, json_get(&facts, "groups"), name);
    const char *root = has("mount") ? json_text(&facts, "mountPoint") : "";
    if (has("mount") && !build_root(json_get(&facts, "rootPlan"), root, has("proc"), &what))
        fail(strstr(what, "/proc") != NULL ? "proc" : "mount", "%s", what);
    release_user(pid, root, &lack);
    bool is_trial = json_is_true(&facts, "isTrial");
    if (is_trial && lack != NULL) {
        errno = 0;
        fail("user_limits", "%s", lack);
    }
    worker->sandbox.has_capabilities = has("capabilities");
    if ((!has("user_limits") || lack != NULL) && !give_up_privileges(&worker->sandbox, has("no_new_privs")))
        fail("capabilities", "its capabilities");
    write_state(directory, pid, address, has_own_network, lack != NULL);
    buffer_format(&told, ",\"name\":\"%s\"", name);
    add_number("pid", pid);
    add_number("user", own_number("user"));
    add_number("control", control);
    add_number("orders", own_number("orders"));
    add_number("output", own_number("output"));
    add_number("program", own_number("program"));
    add_number("connection", -1);
    add_number("networkTie", own_number("networkTie"));
    add_number("networkWords", own_number("networkWords"));
    buffer_format(&told, ",\"isIsolated\":%s,\"hasOwnNetwork\":%s,\"warnings\":[", own_number("network") == NO_NETWORK ? "true" : "false",
                  has_own_network ? "true" : "false");
    if (lack != NULL) {
        /* An operator may have forbidden user namespaces after the layers were probed. */
        struct buffer sentence = {0};
        buffer_format(&sentence, "user_limits is not available here (%s): %s", lack, json_text(&facts, "lackOfLimits"));
        json_write_bytes(&told, sentence.data);
        buffer_free(&sentence);
    }
    /* Includes the byte that parsing overwrites. */
    buffer_format(&told, "]}");
    json_free(&facts);
    json_free(&own);
    if (!worker_read_from(worker, &told))
        _exit(1);
    if (is_trial)
        try_layers(worker);
}
