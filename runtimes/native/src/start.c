/* The order of steps matters: no code of the user runs while this process has rights. */
#include "start.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "deployed.h"
#include "failure.h"
#include "account.h"
#include "frames.h"
#include "furnish.h"
#include "groups.h"
#include "identity.h"
#include "kernel.h"
#include "moment.h"
#include "mounts.h"
#include "processes.h"
#include "rights.h"
#include "root.h"
#include "title.h"

enum { READ_REQUEST_SECONDS = 10, LARGEST_MESSAGE = 64, USUAL_ID = 1000 };

/* The directory of the runtime's socket inside, for a program. */
static const char SOCKETS_NAME[] = "sock";
/* Variables that name the socket and the descriptor for a program that speaks the runtime protocol. */
static const char INSIDE_SOCKETS[] = "/run/rookery", LISTENER[] = "3";

static struct worker *worker;
static struct sandbox *sandbox;
static const struct json *facts;
static struct json request;
static const struct json *command;
static struct identity user;
/* The host's /proc, through which the namespace of the accounts is made. */
static int host_proc = -1;
/* JSON texts, separated by commas. */
static struct buffer warnings;
/* Durations for the answer: a JSON object without its closing brace. */
static struct buffer stages;
static long long stage_began_us;
/* The name of the directory, and its parent. */
static const char *name;
static int parent;
/* The ids of the sandbox's accounts, or NULL if both are its one user. */
static struct account_ids own_ids;
static const struct account_ids *ids;
/* True if the user's process becomes a program, if it makes the socket, and if it may serve HTTP. */
static bool is_program, makes_socket, may_serve_http;

/* True if this worker was made with the property. */
static bool has(const char *fact)
{
    return json_is_true(facts, fact);
}

static bool is_text(const struct json *object, const char *key, const char *text)
{
    return strcmp(json_text(object, key), text) == 0;
}

static bool is_http(void)
{
    return is_text(command, "kind", "http");
}

/* Undoing */

static bool unlink_all(int directory)
{
    int own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = own < 0 ? NULL : fdopendir(own);
    bool is_empty = entries != NULL;
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            is_empty = unlinkat(directory, entry->d_name, 0) == 0 && is_empty;
    }
    if (entries != NULL)
        closedir(entries);
    return is_empty;
}

/* Removes sockets from a directory of the user, where this process may have no rights. */
static bool unlink_sockets(void)
{
    struct stat about;
    if (fstat(worker->sockets, &about) < 0)
        return false;
    int own = (int)syscall(SYS_setfsuid, about.st_uid);
    bool is_empty = unlink_all(worker->sockets);
    syscall(SYS_setfsuid, own);
    return is_empty;
}

/*
 * If the user's program has made directories beside its socket, the directory is kept: the service finds it
 * as that of an ended sandbox, and removes it with its groups.
 */
static void remove_directory(void)
{
    bool is_empty = worker->sockets < 0 || (unlink_sockets() && unlinkat(sandbox->directory, SOCKETS_NAME, AT_REMOVEDIR) == 0);
    if (is_empty && unlink_all(sandbox->directory))
        unlinkat(parent, name, AT_REMOVEDIR);
}

static void undo(void)
{
    kill_all(sandbox->has_pid);
    remove_directory();
}

_Noreturn static void end_without_memory(void)
{
    undo();
    _exit(1);
}

__attribute__((format(printf, 1, 2))) static void warn(const char *format, ...)
{
    struct buffer sentence = {0};
    va_list arguments;
    va_start(arguments, format);
    buffer_format_list(&sentence, format, arguments);
    va_end(arguments);
    if (warnings.size > 0)
        buffer_add(&warnings, ",", 1);
    json_write_bytes(&warnings, sentence.data);
    buffer_free(&sentence);
}

/* Records the duration of the current stage, and begins the next. */
static void end_stage(const char *stage)
{
    long long now_us = monotonic_us();
    double took_ms = (double)(now_us - stage_began_us) / 1000;
    buffer_format(&stages, "%s\"%s\":%.3f", stages.size > 0 ? "," : "{", stage, took_ms);
    stage_began_us = now_us;
}

/* Beginning */

/* Reports to the zygote or the shim, which may have ended. An instance does not need it. */
static void report(const char *key, const struct json *value)
{
    struct buffer message = {0};
    buffer_format(&message, "{\"%s\":", key);
    json_write(&message, value);
    buffer_add(&message, "}", 1);
    (void)!send(worker->control, message.data, message.size, MSG_NOSIGNAL);
    buffer_free(&message);
}

_Noreturn static void end_unused(void)
{
    undo();
    _exit(0);
}

static void adopt_directory(void)
{
    const struct json *id = json_get(&request, "instanceId");
    if (id->kind != JSON_STRING || id->size == 0 || id->text[0] == '.' || strchr(id->text, '/') != NULL || json_has_nul(id))
        fail_start("internal", "the name of an instance is wrong");
    if (renameat(parent, name, worker->instances, id->text) < 0) {
        if (errno == EEXIST || errno == ENOTEMPTY)
            fail_start("already_exists", "an instance %s is here already", id->text);
        fail_with_errno("its directory");
    }
    parent = worker->instances;
    name = id->text;
}

/* A program sees the directory of its socket inside, and may make a socket there. */
static void make_sockets(void)
{
    must(mkdirat(sandbox->directory, SOCKETS_NAME, 0700) == 0, "the directory of its socket");
    worker->sockets = openat(sandbox->directory, SOCKETS_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(worker->sockets >= 0 && renameat(sandbox->directory, SOCKET_NAME, worker->sockets, SOCKET_NAME) == 0, "its socket");
}

static struct json *find_item(struct json *object, const char *key)
{
    return (struct json *)json_get(object, key);
}

/*
 * The interpreter's programs precede those of the system, unless the caller chose a `PATH`: so `python3` and
 * `pip` are those of the code.
 */
static void set_path(struct json *env)
{
    struct json *path = find_item(env, "PATH");
    const struct json *own = json_get(facts, "path");
    if (own->kind == JSON_STRING && path->kind == JSON_STRING && is_text(command, "kind", "python") &&
        strcmp(path->text, json_text(facts, "usualPath")) == 0)
        *path = *own;
}

/*
 * Waits for the request, which may belong to a later start. Ends this process when the client or the zygote
 * closes its connection.
 */
static void wait_for_request(void)
{
    struct pollfd waits[] = {{sandbox->connection, POLLIN, 0}, {worker->control, 0, 0}};
    while (waits[0].revents == 0) {
        if (waits[1].revents != 0)
            end_unused();
        poll(waits, sizeof waits / sizeof *waits, -1);
    }
}

static void receive_request(void)
{
    /* Static, because the environment refers to it. */
    static struct buffer held;
    wait_for_request();
    set_timeout(sandbox->connection, READ_REQUEST_SECONDS);
    if (!read_message(sandbox->connection, LARGEST_FRAME, &held, &request))
        end_unused();
    set_timeout(sandbox->connection, 0);
}

static void read_request(void)
{
    command = json_get(&request, "command");
    /* Without a program the Python runtime refuses each call. */
    is_program = is_text(command, "kind", "exec") && json_get(command, "argv")->count > 0;
    makes_socket = json_is_true(command, "makesSocket");
    may_serve_http = json_is_true(command, "orServesHttp");
    set_path(find_item(&request, "env"));
    sandbox->env = json_get(&request, "env");
    sandbox->working_dir = json_text(&request, "workingDir");
    sandbox->memory_mb = json_number(&request, "memoryMb");
    sandbox->most_open_files = json_number(&request, "maxOpenFiles");
    sandbox->most_processes = json_number(&request, "maxProcesses");
    sandbox->is_program = is_program;
    sandbox->has_accounts = json_is_true(&request, "hasAccounts");
}

/*
 * Checks that this worker has the requested network. The service chooses a worker by its network, so a
 * difference would break isolation.
 */
static void check_fit(void)
{
    const char *asked = json_text(&request, "network");
    bool is_alone = has("isIsolated"), is_own = has("hasOwnNetwork");
    bool is_missing = json_get(facts, "networkMissing")->kind == JSON_STRING;
    bool is_right = strcmp(asked, "none") == 0 ? is_alone
                    : strcmp(asked, "own") == 0 ? is_own || is_alone || (is_missing && !is_http())
                                                : !is_alone;
    if (!is_right)
        fail_start("internal", "the sandbox is in another network than was asked for");
}

static void warn_of_network(void)
{
    if (is_text(&request, "network", "own") && has("isIsolated"))
        warn("the network of this http instance has loopback only and it reaches nothing outside: %s", json_text(facts, "networkMissing"));
}

static void copy_warnings(void)
{
    const struct json *known = json_get(facts, "warnings");
    if (known->count > 0 && json_is_true(&request, "requireIsolation"))
        fail_start(AS_ASKED, "isolation is required, and %s", known->items[0].text);
    for (size_t index = 0; index < known->count; index++)
        warn("%s", known->items[index].text);
}

static void run_as(void)
{
    sandbox->uid = user.uid;
    sandbox->gid = user.gid;
    sandbox->groups = user.groups;
    sandbox->group_count = user.group_count;
}

/*
 * Finds the user of a sandbox with accounts. Where each account has an id, the platform's process gets
 * another one, so that no process inside can end it.
 */
static void find_user_of_platform(void)
{
    if (worker->limits_namespace >= 0 && sandbox->sets_ids && sandbox->has_capabilities) {
        user = (struct identity){.name = "user", .uid = (uid_t)json_number(facts, "limitsOwner")};
        own_ids = account_ids_of(user.uid);
        ids = &own_ids;
    } else {
        user = (struct identity){.name = "user", .uid = sandbox->has_user ? USUAL_ID : geteuid()};
    }
    user.gid = user.uid;
    user.groups = allocate(sizeof *user.groups);
    user.groups[0] = user.gid;
    user.group_count = 1;
}

static void find_user(void)
{
    if (sandbox->has_accounts)
        find_user_of_platform();
    else
        find_identity(&user, json_text(&request, "user"));
    run_as();
    const struct json *resident = json_get(facts, "resident");
    if (resident->kind == JSON_OBJECT &&
        (!is_program || user.uid != (uid_t)json_number(resident, "uid") || user.gid != (gid_t)json_number(resident, "gid") ||
         sandbox->most_open_files != json_number(resident, "maxOpenFiles")))
        fail_start("internal", "the program that waits here is not the one that was asked for");
    if (!sandbox->sets_ids && !sandbox->has_user && user.uid != geteuid())
        warn("the code runs as uid %u and not as %s (uid %u): the server is not root here", (unsigned)geteuid(), user.name,
             (unsigned)user.uid);
    /* The user's program may make a socket there. */
    if (sandbox->sets_ids && is_program)
        must(fchown(worker->sockets, user.uid, user.gid) == 0 && fchownat(worker->sockets, SOCKET_NAME, user.uid, user.gid, 0) == 0,
             "the directory of its socket");
    /* The program makes the runtime's socket: an earlier connect fails and is retried. */
    if (is_program && makes_socket)
        must(unlinkat(worker->sockets, SOCKET_NAME, 0) == 0, "its socket");
}

/* The root */

/*
 * Applies `use` to the platform's mounts, then to the caller's, whose sources are checked. `use` gets a
 * descriptor of each source.
 */
static void for_each_mount(const struct needed *needed, void (*use)(const struct json *, int, const struct needed *))
{
    static const struct needed nothing;
    const struct json *own = json_get(&request, "platformMounts"), *asked = json_get(&request, "mounts");
    const struct json *policy = json_get(&request, "policy");
    static const char *const lists[] = {"closed", "closedNames", "closedTexts"};
    for (size_t index = 0; asked->count > 0 && index < sizeof lists / sizeof *lists; index++) {
        if (policy->kind != JSON_OBJECT || json_get(policy, lists[index])->count == 0)
            fail_start("internal", "there is no rule for mounts");
    }
    for (size_t index = 0; index < own->count; index++) {
        int source = open_own(json_get(&own->items[index], "source"));
        use(&own->items[index], source, &nothing);
        close(source);
    }
    for (size_t index = 0; index < asked->count; index++) {
        int source = open_source(json_get(&asked->items[index], "source"), policy);
        use(&asked->items[index], source, needed);
        close(source);
    }
}

static void mount_one(const struct json *item, int source, const struct needed *needed)
{
    mount_source(source, json_get(item, "target"), json_is_true(item, "readonly"), json_text(facts, "root"), needed);
}

/* Without a mount namespace, a mount is only possible if source and target are equal. */
static void accept_same_path(const struct json *item, int source, const struct needed *needed)
{
    char resolved[PATH_MAX], normal[PATH_MAX], target[PATH_MAX];
    (void)needed;
    path_of(source, resolved);
    normalize_target(json_get(item, "target"), normal);
    if (realpath(normal, target) == NULL || strcmp(target, resolved) != 0)
        fail_start(AS_ASKED,
                   "mounts need a mount namespace, which this machine does not allow; here source and target must be the same path: %s, %s",
                   json_text(item, "source"), json_text(item, "target"));
    if (json_is_true(item, "readonly"))
        warn("%s is not read-only: there is no mount namespace on this machine", json_text(item, "target"));
}

/* The paths that a mount of the caller must not hide. */
static struct needed find_needed(void)
{
    const struct json *known = json_get(facts, "needed"), *own = json_get(&request, "platformMounts");
    struct needed needed = {.paths = allocate((known->count + own->count + 2) * sizeof *needed.paths)};
    for (size_t index = 0; index < known->count; index++)
        needed.paths[needed.count++] = known->items[index].text;
    for (size_t index = 0; index < own->count; index++)
        needed.paths[needed.count++] = json_text(&own->items[index], "target");
    if (is_program)
        needed.paths[needed.count++] = INSIDE_SOCKETS;
    if (may_serve_http || is_http())
        needed.paths[needed.count++] = json_text(facts, "runtime");
    return needed;
}

/* Makes HOME for the user, unless it is a mount or belongs to the host. */
static void make_home(const char *root)
{
    const struct json *home = json_get(sandbox->env, "HOME");
    char normal[PATH_MAX];
    struct stat about, outer;
    const char *reason;
    if (home->kind != JSON_STRING || home->text[0] != '/' || !read_path(home, normal) || strcmp(normal, "/root") == 0)
        return;
    int place = open_target(root, normal, true, &reason);
    if (place < 0)
        return;
    if (sandbox->sets_ids && fstat(place, &about) == 0 && stat(root, &outer) == 0 && about.st_dev == outer.st_dev)
        must(fchownat(place, "", user.uid, user.gid, AT_EMPTY_PATH) == 0, "its home");
    close(place);
}

static void mount_all(void)
{
    const char *root = json_text(facts, "root");
    char size[32];
    if (root[0] == '\0') {
        for_each_mount(NULL, accept_same_path);
        return;
    }
    /* Limits the size of the root's own files. */
    snprintf(size, sizeof size, "size=%lldm", (long long)sandbox->memory_mb);
    must(mount(NULL, root, NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV, size) == 0, "the size of its root");
    if (sandbox->has_accounts)
        must(furnish_etc(json_get(facts, "rootPlan"), root, ids, user.uid, size), "its /etc");
    struct needed needed = find_needed();
    for_each_mount(&needed, mount_one);
    free(needed.paths);
    if (is_program) {
        struct json target = {.kind = JSON_STRING, .text = (char *)INSIDE_SOCKETS, .size = sizeof INSIDE_SOCKETS - 1};
        mount_source(worker->sockets, &target, false, root, &(struct needed){0});
    }
    if (sandbox->has_accounts)
        must(furnish_homes(root, ids, sandbox->env), "its homes");
    else
        make_home(root);
    must(enter_root(root), "its root");
}

/* Rights and limits */

static bool is_mapped(void)
{
    return sandbox->has_user && (user.uid != 0 || user.gid != 0);
}

static void refused_limit(const char *file, const char *value, const char *reason)
{
    warn("the limit %s = %s was refused: %s", file, value, reason);
}

static void enter_limits_namespace(void)
{
    if (worker->limits_namespace < 0)
        return;
    must(enter_namespace_of((uid_t)json_number(facts, "limitsOwner"), worker->limits_namespace) &&
             give_up_privileges(sandbox, has("hasNoNewPrivs")),
         "user_limits");
    if (ids != NULL) {
        sandbox->accounts_namespace = make_accounts_namespace(host_proc, *ids);
        must(sandbox->accounts_namespace >= 0, "the user namespace of its accounts");
        close(host_proc);
    }
    close(worker->limits_namespace);
}

/* True if the caller has disconnected. */
static bool has_caller_left(void)
{
    char byte;
    ssize_t count = recv(sandbox->connection, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno != EAGAIN);
}

/* Orders and answer */

static void add_text(struct buffer *target, const char *key, const char *text)
{
    buffer_format(target, ",\"%s\":", key);
    json_write_bytes(target, text);
}

static void add_value(struct buffer *target, const char *key, const struct json *value)
{
    buffer_format(target, ",\"%s\":", key);
    json_write(target, value);
}

static void add_identity(struct buffer *target)
{
    buffer_format(target, ",\"identity\":{\"uid\":%u,\"gid\":%u,\"groups\":[", (unsigned)user.uid, (unsigned)user.gid);
    for (size_t index = 0; index < user.group_count; index++)
        buffer_format(target, "%s%u", index ? "," : "", (unsigned)user.groups[index]);
    buffer_format(target, "],\"set\":%s,\"map\":%s}", sandbox->sets_ids ? "true" : "false", is_mapped() ? "true" : "false");
}

/* Adds the variables that a program needs to be the runtime itself. The last of equal names counts. */
static void add_program(struct buffer *target)
{
    struct buffer socket = {0};
    const char *instances = json_text(facts, "instancesPath");
    if (json_text(facts, "root")[0] != '\0')
        buffer_format(&socket, "%s/%s", INSIDE_SOCKETS, SOCKET_NAME);
    else
        buffer_format(&socket, "%s/%s/%s/%s", instances, name, SOCKETS_NAME, SOCKET_NAME);
    add_value(target, "argv", json_get(command, "argv"));
    add_value(target, "env", sandbox->env);
    /* Continues after the last variable. */
    target->size--;
    buffer_format(target, "%s\"ROOKERY_RUNTIME_SOCKET\":", sandbox->env->count ? "," : "");
    json_write_bytes(target, socket.data);
    add_value(target, "ROOKERY_RUNTIME_SECRET", json_get(&request, "secret"));
    if (!makes_socket)
        add_text(target, "ROOKERY_RUNTIME_FD", LISTENER);
    /* On a shared network the port may belong to another program. */
    bool may_serve = may_serve_http && (has("hasOwnNetwork") || has("isIsolated"));
    buffer_format(target, "},\"keepsListener\":%s,\"mayServeHttp\":%s", makes_socket ? "false" : "true", may_serve ? "true" : "false");
    buffer_free(&socket);
}

/*
 * Sends the user's process all facts that it needs about this instance. If the process has ended, no code of
 * the request has run: this process ends without an answer, and the control plane retries.
 */
static void give_orders(void)
{
    struct buffer orders = {0};
    buffer_format(&orders, "{\"instanceId\":");
    json_write_bytes(&orders, name);
    add_value(&orders, "workingDir", json_get(&request, "workingDir"));
    add_identity(&orders);
    buffer_format(&orders, ",\"limits\":{\"memoryMb\":%.0f,\"maxOpenFiles\":%.0f,\"maxProcesses\":%.0f}", sandbox->memory_mb,
                  sandbox->most_open_files, sandbox->most_processes);
    if (is_program) {
        add_program(&orders);
    } else {
        add_value(&orders, "env", sandbox->env);
        add_value(&orders, "secret", json_get(&request, "secret"));
        if (is_http())
            add_value(&orders, "server", json_get(command, "argv"));
        else
            add_value(&orders, "init", json_get(&request, "init"));
    }
    buffer_add(&orders, "}", 1);
    bool is_sent = send_frame(worker->orders, orders.data, orders.size);
    /* Erases secrets from this memory, because children of init become the user. */
    const struct json *secret = json_get(&request, "secret");
    if (secret->kind == JSON_STRING)
        explicit_bzero(secret->text, secret->size);
    explicit_bzero(orders.data, orders.size);
    buffer_free(&orders);
    if (!is_sent)
        end_without_memory();
}

/* Lets the user's process begin. If it has ended since it got its orders, its log has the reason. */
static void start_user(void)
{
    /* A waiting program reads only orders. */
    if (json_get(facts, "resident")->kind != JSON_OBJECT)
        (void)!send(worker->orders, "g", 1, MSG_NOSIGNAL);
    close(worker->orders);
    close(worker->runtime_listener);
}

/* Returns false if the caller has disconnected. */
static bool answer(void)
{
    return send_format(sandbox->connection, "{\"ok\":true,\"data\":%s,\"uid\":%u,\"warnings\":[%.*s],\"stages\":%.*s}}",
                       json_text(facts, "state"), (unsigned)user.uid, (int)warnings.size, warnings.size ? warnings.data : "",
                       (int)stages.size, stages.data);
}

/* The end of a shim is the end of this process too. */
static void tie_to_shim(void)
{
    char byte;
    if (!has("isSupervised"))
        return;
    /* Set last, because changes of ids and capabilities reset it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ssize_t count = recv(worker->control, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN))
        fail_start("internal", "the sandbox cannot be started: the supervised program has ended");
}

/*
 * Enters a user namespace for the commands that this process will run inside; the user's process has its own.
 * The files in /proc of an uninspectable process belong to root of the namespace in which it was executed.
 * Outside of this namespace that root is the user of those commands. So this program executes itself again,
 * and continues in `resume_start`.
 */
static void enter_namespace_of_user(void)
{
    struct buffer told = {0};
    must(enter_user_namespace(user.uid, user.gid) && give_up_privileges(sandbox, has("hasNoNewPrivs")), "user");
    json_write(&told, facts);
    /* Continues after the last fact. The last of equal names counts. */
    told.size--;
    buffer_format(&told, ",\"connection\":%d,\"sockets\":%d,\"warnings\":[%.*s],\"stages\":%.*s},\"stageBeganUs\":%lld",
                  sandbox->connection, worker->sockets, (int)warnings.size, warnings.size ? warnings.data : "", (int)stages.size, stages.data,
                  stage_began_us);
    add_value(&told, "request", &request);
    add_identity(&told);
    buffer_add(&told, "}", 1);
    execute_again(worker, &told);
    fail_with_errno("user");
}

/* Continues after `enter_namespace_of_user`. */
static void resume_start(void)
{
    const struct json *found = json_get(facts, "identity"), *groups = json_get(found, "groups"), *known = json_get(facts, "warnings");
    request = *json_get(facts, "request");
    read_request();
    parent = worker->instances;
    name = json_text(&request, "instanceId");
    user = (struct identity){.uid = (uid_t)json_number(found, "uid"), .gid = (gid_t)json_number(found, "gid")};
    user.groups = allocate(groups->count * sizeof *user.groups);
    while (user.group_count < groups->count) {
        user.groups[user.group_count] = (gid_t)groups->items[user.group_count].number;
        user.group_count++;
    }
    run_as();
    for (size_t index = 0; index < known->count; index++)
        warn("%s", known->items[index].text);
    /* Continues before the closing brace. */
    json_write(&stages, json_get(facts, "stages"));
    stages.size--;
    stage_began_us = (long long)json_number(facts, "stageBeganUs");
}

/* Handles the request up to the point where only the orders are missing. */
static void prepare(void)
{
    if (sandbox->connection < 0) {
        find_usual_identity();
        report("ready", json_get(facts, "pid"));
        sandbox->connection = take_connection(worker->control);
        if (sandbox->connection < 0)
            end_unused();
    }
    receive_request();
    stage_began_us = monotonic_us();
    read_request();
    adopt_directory();
    if (is_program)
        make_sockets();
    copy_warnings();
    check_fit();
    find_user();
    /*
     * The interpreter prepares for the code while its root is made. A program may begin at once, so it gets
     * its orders last.
     */
    if (!is_program)
        give_orders();
    end_stage("orders");
    if (ids != NULL)
        must((host_proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0, "/proc");
    mount_all();
    if (json_get(command, "deployDir")->kind == JSON_STRING)
        check_deployed(command, &user, sandbox->sets_ids);
    warn_of_network();
    end_stage("mounts");
    /* Late, so that a small CPU share does not slow the steps before it. */
    write_limits(json_get(facts, "limits"), &request, refused_limit);
    end_stage("limits");
    if (is_mapped())
        enter_namespace_of_user();
}

void start_instance(struct worker *told)
{
    worker = told;
    sandbox = &told->sandbox;
    facts = told->facts;
    name = json_text(facts, "name");
    parent = worker->workers;
    fail_by(undo, &sandbox->connection);
    void (*usual)(void) = on_out_of_memory;
    on_out_of_memory = end_without_memory;
    if (json_get(facts, "request")->kind == JSON_OBJECT)
        resume_start();
    else
        prepare();
    must(keep_rights_of_init(sandbox), "capabilities");
    forbid_inspection();
    if (has_caller_left())
        end_unused();
    if (is_program)
        give_orders();
    start_user();
    /* No code of the user has run so far. The user's process is in its own namespace already. */
    enter_limits_namespace();
    must(keep_rights_of_init(sandbox), "capabilities");
    forbid_inspection();
    must(filter_as_told(facts, ids != NULL ? "filterOfAccounts" : "filter"), "seccomp");
    tie_to_shim();
    end_stage("rights");
    /*
     * Comes last, because it wakes the service, perhaps on the processor that loads the code. If the caller
     * has just disconnected, the code may have begun.
     */
    if (!answer() && !json_is_true(&request, "survivesCaller"))
        end_unused();
    report("taken", json_get(&request, "instanceId"));
    close(worker->control);
    close(worker->workers);
    close(worker->instances);
    close(worker->sockets);
    close(worker->program);
    struct buffer title = {0};
    buffer_format(&title, "rookery: init %s", name);
    show_title(title.data);
    buffer_free(&title);
    on_out_of_memory = usual;
}
