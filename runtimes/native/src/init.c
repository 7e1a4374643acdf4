/* Pid 1 of the pid namespace, so that its own end is the end of everything inside. With nothing to do it is parked in `poll`. */
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ending.h"
#include "frames.h"
#include "log.h"
#include "moment.h"
#include "processes.h"
#include "reason.h"
#include "ways.h"

enum {
    CHUNK = 65536,
    MOST_CONNECTIONS = 64,
    MOST_WAYS = 512,
    REQUEST_SECONDS = 5,
    SEND_SECONDS = 2,
    OUTPUT = 0,
    WATCH = 1,
    LISTENER = 2,
    FIRST_CONNECTION = 3,
};

static const struct sandbox *sandbox;
static struct log output_log;
/* How the user's process has ended, once it has. */
static int user_status;
static bool has_user_ended, has_children = true;
static long long deadline = NEVER;
/* Why it was asked to end, when somebody else than the control plane did. */
static char *cause;
/* The output, the watch for children, the listener, then connections that wait for the end, or have not said yet what they want. */
static struct pollfd waits[FIRST_CONNECTION + MOST_CONNECTIONS];
static bool hears_end[FIRST_CONNECTION + MOST_CONNECTIONS];
static int waits_count = FIRST_CONNECTION;
/* The children that serve ways into the sandbox. */
static struct {
    pid_t pid;
    enum way way;
} open_ways[MOST_WAYS];
static int open_ways_count;

static void has_ended(pid_t pid, int status)
{
    if (pid == sandbox->user && !has_user_ended) {
        has_user_ended = true;
        user_status = status;
    }
    for (int index = 0; index < open_ways_count; index++) {
        if (open_ways[index].pid == pid)
            open_ways[index] = open_ways[--open_ways_count];
    }
}

static void reap(int options)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, options);
        if (pid < 0 && errno == EINTR)
            continue;
        has_children = pid >= 0;
        if (pid <= 0)
            return;
        has_ended(pid, status);
    }
}

/* False when there is nothing now. */
static bool pump(void)
{
    static char chunk[CHUNK];
    ssize_t count = read(sandbox->output, chunk, sizeof chunk);
    if (count == 0)
        waits[OUTPUT].fd = -1;
    if (count <= 0)
        return false;
    log_write(&output_log, chunk, (size_t)count);
    return true;
}

static void add_connection(int connection, int seconds)
{
    set_timeout(connection, seconds);
    waits[waits_count] = (struct pollfd){connection, POLLIN, 0};
    hears_end[waits_count++] = false;
}

/* Whether the peer may give orders: the service has the user of this process, and no pid in the pid namespace of the sandbox. */
static bool is_service(int connection)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid() &&
           (!sandbox->has_pid || peer.pid == 0);
}

static void accept_one(void)
{
    int connection = accept4(sandbox->listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0)
        return;
    if (waits_count == FIRST_CONNECTION + MOST_CONNECTIONS || !is_service(connection))
        close(connection);
    else
        add_connection(connection, REQUEST_SECONDS);
}

static void close_connection(int index)
{
    close(waits[index].fd);
    waits[index] = waits[--waits_count];
    hears_end[index] = hears_end[waits_count];
}

/* A runtime sees to its own children; those of a program (a shell's) have to be asked too. */
static pid_t asked_to_end(void)
{
    return sandbox->is_program && sandbox->has_pid ? -1 : sandbox->user;
}

/* A program was asked to end and did, and processes of it still use the time that they were given. */
static bool is_ending(void)
{
    return deadline != NEVER && asked_to_end() == -1 && has_children;
}

/* Asks the runtime to end. A second stop can only shorten the time of the first. */
static void stop(double grace_ms)
{
    long long asked = after_ms(grace_ms);
    if (deadline == NEVER)
        kill(asked_to_end(), SIGTERM);
    if (deadline == NEVER || asked < deadline)
        deadline = asked;
}

static void serve_child_of(int connection)
{
    pid_t child = fork();
    if (child == 0)
        serve_command(connection, sandbox);
    if (child < 0)
        refuse(connection, "unavailable", "no process can be started inside: %s", reason_of(errno));
}

/* A child serves it; here it is counted and no connection any more, so that long ones are in nobody's way. */
static void open_way(int connection, const char *name)
{
    enum way way = way_of(name);
    int open = 0;
    if (way == WAYS) {
        refuse(connection, "internal", "there is no way %s into a sandbox", name);
        return;
    }
    /* Ends that were not heard of yet make room. */
    reap(WNOHANG);
    for (int index = 0; index < open_ways_count; index++)
        open += open_ways[index].way == way;
    if (open >= most_open(way)) {
        refuse(connection, "resource_exhausted", "too many %s are open in this sandbox (%d)", words_of(way), most_open(way));
        return;
    }
    pid_t child = fork();
    if (child == 0)
        serve_way(connection, sandbox, way);
    if (child < 0) {
        refuse(connection, "unavailable", "no process can be started inside: %s", reason_of(errno));
        return;
    }
    open_ways[open_ways_count].pid = child;
    open_ways[open_ways_count++].way = way;
}

/* For where no control group counts: what /proc says of those inside. */
static void tell_usage(int connection)
{
    size_t count, alive;
    double memory_bytes, cpu_micros;
    pid_t *pids = descendants(getpid(), &count);
    pids = reallocate(pids, (count + 1) * sizeof *pids);
    pids[count++] = getpid();
    usage_of(pids, count, &memory_bytes, &cpu_micros, &alive);
    free(pids);
    send_format(connection, "{\"memoryBytes\":%.0f,\"cpuMicros\":%.0f,\"processes\":%zu}", memory_bytes, cpu_micros, alive);
}

/* False when the connection is of no use any more. */
static bool do_as_asked(int index, const struct json *request)
{
    int connection = waits[index].fd;
    const char *operation = json_text(request, "op");
    if (strcmp(operation, "watch") == 0) {
        hears_end[index] = true;
        return true;
    }
    if (strcmp(operation, "stop") == 0) {
        hears_end[index] = true;
        if (cause == NULL && json_get(request, "cause")->kind == JSON_STRING)
            cause = json_bytes(json_get(request, "cause"));
        stop(json_number(request, "graceMs"));
        return true;
    }
    if (strcmp(operation, "stats") == 0) {
        tell_usage(connection);
        return true;
    }
    if (strcmp(operation, "exec") == 0)
        serve_child_of(connection);
    else if (strcmp(operation, "access") == 0)
        open_way(connection, json_text(request, "way"));
    return false;
}

/* Reads what a connection asks for, and does it. False when it is of no use any more. */
static bool obey(int index)
{
    static struct buffer held;
    struct json request = {0};
    bool goes_on = read_message(waits[index].fd, CHUNK, &held, &request) && do_as_asked(index, &request);
    json_free(&request);
    return goes_on;
}

/* False where there is not enough room behind the state. */
static bool publish_in_state(const struct buffer *ending)
{
    char text[CHUNK];
    struct buffer whole = {0};
    int file = openat(sandbox->directory, STATE_NAME, O_RDWR | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : pread(file, text, sizeof text, 0), last = size - 1;
    while (last >= 0 && text[last] != '}')
        last--;
    bool has_room = last >= 0 && (ssize_t)ending->size + 16 <= size - last;
    if (has_room) {
        buffer_format(&whole, ",\"exit\":%.*s}", (int)ending->size, ending->data);
        has_room = pwrite(file, whole.data, whole.size, last) == (ssize_t)whole.size;
    }
    buffer_free(&whole);
    return close(file) == 0 && has_room;
}

/* Whoever may be reading sees all of it or nothing. */
static void publish_beside_state(const struct buffer *ending)
{
    int file = openat(sandbox->directory, "exit.json.tmp", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    bool is_whole = file >= 0 && write(file, ending->data, ending->size) == (ssize_t)ending->size;
    is_whole = close(file) == 0 && is_whole;
    if (!is_whole || renameat(sandbox->directory, "exit.json.tmp", sandbox->directory, "exit.json") < 0)
        unlinkat(sandbox->directory, "exit.json.tmp", 0);
}

/* Nothing else runs when the end is reported. */
_Noreturn static void end(void)
{
    struct buffer ending = {0};
    kill_all(sandbox->has_pid);
    while (pump())
        ;
    write_ending(&ending, sandbox, user_status, cause);
    if (!publish_in_state(&ending))
        publish_beside_state(&ending);
    /* Nobody answers there any more; who removes the sandbox has less to do. */
    unlinkat(sandbox->directory, CONTROL_NAME, 0);
    unlinkat(sandbox->directory, SOCKET_NAME, 0);
    for (int index = FIRST_CONNECTION; index < waits_count; index++) {
        if (hears_end[index])
            send_format(waits[index].fd, "{\"exit\":%.*s}", (int)ending.size, ending.data);
    }
    _exit(0);
}

_Noreturn void run_init(const struct sandbox *told)
{
    sandbox = told;
    output_log = (struct log){.directory = told->directory, .largest = told->log_bytes, .files = told->log_files, .file = -1};
    fcntl(told->output, F_SETFL, O_NONBLOCK);
    waits[OUTPUT] = (struct pollfd){told->output, POLLIN, 0};
    waits[WATCH] = (struct pollfd){watch_children(), POLLIN, 0};
    waits[LISTENER] = (struct pollfd){told->listener, POLLIN, 0};
    if (told->connection >= 0) {
        fcntl(told->connection, F_SETFL, 0);
        add_connection(told->connection, SEND_SECONDS);
        hears_end[FIRST_CONNECTION] = true;
    }
    /* A child that ended before anybody listened. */
    reap(WNOHANG);
    while (!has_user_ended || is_ending()) {
        poll(waits, (nfds_t)waits_count, left_ms(deadline));
        if (waits[OUTPUT].revents)
            pump();
        if (waits[WATCH].revents) {
            forget_signals(waits[WATCH].fd);
            reap(WNOHANG);
        }
        /* From the last: closing one puts the last in its place. */
        for (int index = waits_count - 1; index >= FIRST_CONNECTION; index--) {
            if (waits[index].revents && !obey(index))
                close_connection(index);
        }
        if (waits[LISTENER].revents)
            accept_one();
        if (is_over(deadline)) {
            deadline = NEVER;
            if (!has_user_ended)
                kill(told->user, SIGKILL);
        }
    }
    end();
}
