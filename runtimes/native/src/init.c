/* Pid 1 of the pid namespace: its end ends all processes inside. An idle init waits in `poll`. */
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
#include "access.h"
#include "accesses.h"
#include "table.h"

enum {
    CHUNK = 65536,
    MOST_CONNECTIONS = 64,
    REQUEST_SECONDS = 5,
    SEND_SECONDS = 2,
    OUTPUT = 0,
    WATCH = 1,
    LISTENER = 2,
    FIRST_CONNECTION = 3,
};

static const struct sandbox *sandbox;
static struct log output_log;
/* The wait status of the user's process after its end. */
static int user_status;
static bool has_user_ended, has_children = true;
static long long deadline = NEVER;
/* Why the end was requested, unless by the control plane. */
static char *cause;
/*
 * The output, the signal descriptor, the listener, then connections: they wait for the end, or have not sent
 * a request yet.
 */
static struct pollfd waits[FIRST_CONNECTION + MOST_CONNECTIONS];
static bool awaits_end[FIRST_CONNECTION + MOST_CONNECTIONS];
static int waits_count = FIRST_CONNECTION;

static void child_ended(pid_t pid, int status)
{
    if (pid == sandbox->user && !has_user_ended) {
        has_user_ended = true;
        user_status = status;
    }
    note_end_of_table(pid);
    note_end_of_access(pid);
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
        child_ended(pid, status);
    }
}

/* Copies output to the log. Returns false if none is available. */
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
    awaits_end[waits_count++] = false;
}

/*
 * True if the peer may send requests: the service has the user of this process, and no pid inside the
 * sandbox.
 */
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
    awaits_end[index] = awaits_end[waits_count];
}

/*
 * Returns the target of SIGTERM. A runtime ends its own children; those of a program, such as a shell, have
 * to be signalled too.
 */
static pid_t stop_target(void)
{
    return sandbox->is_program && sandbox->has_pid ? -1 : sandbox->user;
}

/* True while a program has ended as requested, and its child processes use the rest of the grace. */
static bool is_ending(void)
{
    return deadline != NEVER && stop_target() == -1 && has_children;
}

/* Requests the end of the user's process. A second stop can only shorten the grace of the first. */
static void stop(double grace_ms)
{
    long long asked = after_ms(grace_ms);
    if (deadline == NEVER)
        kill(stop_target(), SIGTERM);
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

/* Reports usage from /proc, for machines without control groups. */
static void report_usage(int connection)
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

/* Performs a request. Returns false if the connection can be closed. */
static bool perform(int index, const struct json *request)
{
    int connection = waits[index].fd;
    const char *operation = json_text(request, "op");
    if (strcmp(operation, "watch") == 0) {
        awaits_end[index] = true;
        return true;
    }
    if (strcmp(operation, "stop") == 0) {
        awaits_end[index] = true;
        if (cause == NULL && json_get(request, "cause")->kind == JSON_STRING)
            cause = json_bytes(json_get(request, "cause"));
        stop(json_number(request, "graceMs"));
        return true;
    }
    if (strcmp(operation, "stats") == 0) {
        report_usage(connection);
        return true;
    }
    if (strcmp(operation, "exec") == 0)
        serve_child_of(connection);
    else if (strcmp(operation, "access") == 0 && strcmp(json_text(request, "way"), PROCESSES_NAME) == 0)
        pass_to_table(connection, sandbox);
    else if (strcmp(operation, "access") == 0) {
        /* Reaps first, so that ended accesses free their slots. */
        reap(WNOHANG);
        start_access(connection, sandbox, json_text(request, "way"));
    }
    return false;
}

/* Reads a request and performs it. Returns false if the connection can be closed. */
static bool serve_request(int index)
{
    static struct buffer held;
    struct json request = {0};
    bool goes_on = read_message(waits[index].fd, CHUNK, &held, &request) && perform(index, &request);
    json_free(&request);
    return goes_on;
}

/* Writes the ending into the state file. Returns false if the space behind the state is too small. */
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

/* Writes the ending into a file of its own, atomically. */
static void publish_beside_state(const struct buffer *ending)
{
    int file = openat(sandbox->directory, "exit.json.tmp", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    bool is_whole = file >= 0 && write(file, ending->data, ending->size) == (ssize_t)ending->size;
    is_whole = close(file) == 0 && is_whole;
    if (!is_whole || renameat(sandbox->directory, "exit.json.tmp", sandbox->directory, "exit.json") < 0)
        unlinkat(sandbox->directory, "exit.json.tmp", 0);
}

/* Ends the sandbox: kills all processes, then reports the ending. */
_Noreturn static void end(void)
{
    struct buffer ending = {0};
    kill_all(sandbox->has_pid);
    while (pump())
        ;
    write_ending(&ending, sandbox, user_status, cause);
    if (!publish_in_state(&ending))
        publish_beside_state(&ending);
    /* Removes the sockets, which nothing serves any more; the later removal has less to do. */
    unlinkat(sandbox->directory, CONTROL_NAME, 0);
    unlinkat(sandbox->directory, SOCKET_NAME, 0);
    for (int index = FIRST_CONNECTION; index < waits_count; index++) {
        if (awaits_end[index])
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
        awaits_end[FIRST_CONNECTION] = true;
    }
    /* Reaps children that ended before the signal descriptor existed. */
    reap(WNOHANG);
    while (!has_user_ended || is_ending()) {
        poll(waits, (nfds_t)waits_count, remaining_ms(deadline));
        if (waits[OUTPUT].revents)
            pump();
        if (waits[WATCH].revents) {
            drain_signals(waits[WATCH].fd);
            reap(WNOHANG);
        }
        /* In reverse order: closing a connection moves the last one into its place. */
        for (int index = waits_count - 1; index >= FIRST_CONNECTION; index--) {
            if (waits[index].revents && !serve_request(index))
                close_connection(index);
        }
        if (waits[LISTENER].revents)
            accept_one();
        if (has_passed(deadline)) {
            deadline = NEVER;
            if (!has_user_ended)
                kill(told->user, SIGKILL);
        }
    }
    end();
}
