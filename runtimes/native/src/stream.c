/*
 * Runs a command with open input and output streams over one connection. After the request, frames go both
 * ways; the first byte is the kind. Each stream has a window: the most bytes in transit until the reader
 * gives credit. So neither side ever stops reading the connection, and a resize or a kill always arrives.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frames.h"
#include "moment.h"
#include "processes.h"
#include "program.h"
#include "reason.h"
#include "access.h"

/* The kinds of frames. STDIN, STDOUT and STDERR also name the streams of a CREDIT. */
enum kind { STDIN, STDOUT, STDERR, STDIN_END, RESIZE, KILL, CREDIT, EXIT };

enum {
    /* The window of a stream. */
    WINDOW = 262144,
    CREDIT_STEP = WINDOW / 4,
    CHUNK = 65536,
    LARGEST = WINDOW + 16,
    /*
     * The most output that is still read of an ended command. Other processes may keep the pipes open and
     * write on.
     */
    MOST_LEFT = 1048576,
    /* The time in which the caller must read the end. */
    HEARD_SECONDS = 10,
    /* The time a terminal may need to deliver the last output. */
    TERMINAL_MS = 100,
};

struct output {
    /* -1 after the command has ended. */
    int descriptor;
    unsigned long credit;
    /* For an ended command: whether an output may have more data, and the most that is still read. */
    bool is_left;
    long most_left;
};

struct conversation {
    int connection, watch;
    pid_t pid;
    bool has_terminal;
    /* -1 when the input is closed. */
    int input;
    struct output outputs[2];
    struct buffer received, unsent;
    /* Input that the command has not read yet, and input that it has read without credit for the caller. */
    struct buffer waiting;
    unsigned long taken;
    bool input_ends;
    bool has_ended;
    int status;
    long long ended_at;
};

/* Sends as much as the peer accepts now. */
static void flush(struct conversation *one)
{
    if (one->unsent.size == 0)
        return;
    ssize_t count = send(one->connection, one->unsent.data, one->unsent.size, MSG_NOSIGNAL);
    if (count > 0)
        buffer_take(&one->unsent, (size_t)count);
    else if (count < 0 && errno != EAGAIN)
        _exit(1);
}

static void add_message(struct conversation *one, enum kind kind, const void *payload, size_t size)
{
    unsigned char head[FRAME_HEAD + 1];
    put_u32(head, size + 1);
    head[FRAME_HEAD] = (unsigned char)kind;
    buffer_add(&one->unsent, head, sizeof head);
    buffer_add(&one->unsent, payload, size);
}

static void say(struct conversation *one, enum kind kind, const void *payload, size_t size)
{
    add_message(one, kind, payload, size);
    flush(one);
}

/* Signals the whole session: a shell puts each job into a group of its own. */
static void end_command(struct conversation *one)
{
    size_t count;
    kill(-one->pid, SIGKILL);
    /* The session may not exist yet. */
    kill(one->pid, SIGKILL);
    struct process *all = processes(&count);
    for (size_t index = 0; index < count; index++) {
        if (getsid(all[index].pid) == one->pid)
            kill(all[index].pid, SIGKILL);
    }
    free(all);
}

/* Input */

static void close_input(struct conversation *one)
{
    close(one->input);
    one->input = -1;
}

static void take(struct conversation *one, size_t count)
{
    buffer_take(&one->waiting, count);
    one->taken += count;
    if (one->taken < CREDIT_STEP && (one->taken == 0 || one->input >= 0))
        return;
    unsigned char payload[5] = {STDIN};
    put_u32(payload + 1, one->taken);
    one->taken = 0;
    say(one, CREDIT, payload, sizeof payload);
}

static void feed(struct conversation *one)
{
    if (one->input >= 0 && one->waiting.size > 0) {
        ssize_t count = write(one->input, one->waiting.data, one->waiting.size);
        if (count < 0 && errno == EAGAIN)
            return;
        if (count >= 0)
            take(one, (size_t)count);
        else
            /* The command has closed its input, which is no failure. */
            close_input(one);
    }
    if (one->input < 0)
        take(one, one->waiting.size);
    else if (one->input_ends && one->waiting.size == 0)
        close_input(one);
}

/* The connection */

static void resize(int terminal, unsigned columns, unsigned rows)
{
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    ioctl(terminal, TIOCSWINSZ, &size);
}

/* Returns false if the frame is invalid. */
static bool serve_request(struct conversation *one, enum kind kind, const unsigned char *payload, size_t size)
{
    switch (kind) {
    case STDIN:
        if (one->waiting.size + size > WINDOW)
            return false;
        buffer_add(&one->waiting, payload, size);
        feed(one);
        return true;
    case STDIN_END:
        one->input_ends = !one->has_terminal;
        feed(one);
        return true;
    case RESIZE:
        if (size != 4)
            return false;
        if (one->has_terminal && one->input >= 0)
            resize(one->input, payload[0] * 256u + payload[1], payload[2] * 256u + payload[3]);
        return true;
    case KILL:
        end_command(one);
        return true;
    case CREDIT:
        if (size != 5 || (payload[0] != STDOUT && payload[0] != STDERR))
            return false;
        one->outputs[payload[0] - STDOUT].credit += get_u32(payload + 1);
        return true;
    default:
        return true;
    }
}

/* Returns false if the caller has disconnected or sent an invalid frame. */
static bool talk(struct conversation *one, short event)
{
    if (event & POLLOUT)
        flush(one);
    if (!(event & ~POLLOUT))
        return true;
    ssize_t count = recv(one->connection, buffer_room(&one->received, CHUNK), CHUNK, 0);
    if (count <= 0)
        return count < 0 && errno == EAGAIN;
    one->received.size += (size_t)count;
    while (one->received.size >= FRAME_HEAD) {
        size_t size = get_u32(one->received.data);
        /* An empty frame has no kind. */
        if (size == 0 || size > LARGEST)
            return false;
        if (one->received.size < FRAME_HEAD + size)
            return true;
        const unsigned char *frame = (const unsigned char *)one->received.data + FRAME_HEAD;
        if (!serve_request(one, (enum kind)frame[0], frame + 1, size - 1))
            return false;
        buffer_take(&one->received, FRAME_HEAD + size);
    }
    return true;
}

/* Outputs */

static bool can_send(const struct conversation *one, const struct output *output)
{
    return output->descriptor >= 0 && output->credit > 0 && one->unsent.size < WINDOW;
}

/* Returns the count of bytes read; -1 at the end, or when none are available. */
static long read_output(struct conversation *one, enum kind stream)
{
    static char chunk[CHUNK];
    struct output *output = &one->outputs[stream - STDOUT];
    ssize_t count = read(output->descriptor, chunk, output->credit < CHUNK ? output->credit : CHUNK);
    if (count < 0 && errno == EAGAIN)
        return -1;
    if (count <= 0) {
        /* A terminal ends with EIO. */
        close(output->descriptor);
        output->descriptor = -1;
        output->is_left = false;
        return -1;
    }
    output->credit -= (unsigned long)count;
    say(one, stream, chunk, (size_t)count);
    return count;
}

/* True if an empty output stays empty. A pipe is empty at once; a terminal may deliver data shortly after. */
static bool stays_empty(const struct conversation *one)
{
    return !one->has_terminal || monotonic_ms() - one->ended_at >= TERMINAL_MS;
}

static void read_rest(struct conversation *one)
{
    for (int index = 0; index < 2; index++) {
        struct output *output = &one->outputs[index];
        while (output->is_left && can_send(one, output)) {
            long count = read_output(one, STDOUT + (enum kind)index);
            if (count < 0) {
                if (stays_empty(one))
                    output->is_left = false;
                break;
            }
            output->most_left -= count;
            if (output->most_left <= 0)
                output->is_left = false;
        }
    }
}

/* The end */

static void reap(struct conversation *one)
{
    drain_signals(one->watch);
    if (one->has_ended || waitpid(one->pid, &one->status, WNOHANG) != one->pid)
        return;
    one->has_ended = true;
    one->ended_at = monotonic_ms();
    for (int index = 0; index < 2; index++) {
        one->outputs[index].is_left = one->outputs[index].descriptor >= 0;
        one->outputs[index].most_left = MOST_LEFT;
    }
}

static void tell_end(struct conversation *one)
{
    int code = WIFSIGNALED(one->status) ? 128 + WTERMSIG(one->status) : WEXITSTATUS(one->status);
    unsigned char payload[4];
    put_u32(payload, (unsigned long)code);
    add_message(one, EXIT, payload, sizeof payload);
    fcntl(one->connection, F_SETFL, 0);
    set_timeout(one->connection, 0);
    if (!send_all(one->connection, one->unsent.data, one->unsent.size))
        return;
    /*
     * Waits for the caller to close: credit may be in transit, and a write to a closed connection would hide
     * the end.
     */
    set_timeout(one->connection, HEARD_SECONDS);
    while (recv(one->connection, buffer_room(&one->received, CHUNK), CHUNK, 0) > 0)
        ;
}

/* Returns false if the caller disconnects first. */
static bool converse(struct conversation *one)
{
    static const char good[] = "{\"ok\":true}";
    add_frame(&one->unsent, good, sizeof good - 1);
    flush(one);
    /* The command may have ended before the signal descriptor existed. */
    reap(one);
    while (!one->has_ended || one->outputs[0].is_left || one->outputs[1].is_left) {
        struct pollfd waits[5] = {
            {one->watch, POLLIN, 0},
            {one->connection, (short)(POLLIN | (one->unsent.size ? POLLOUT : 0)), 0},
            /* Excludes closed outputs, whose hang-up `poll` would report again and again. */
            {one->waiting.size > 0 ? one->input : -1, POLLOUT, 0},
            {can_send(one, &one->outputs[0]) ? one->outputs[0].descriptor : -1, POLLIN, 0},
            {can_send(one, &one->outputs[1]) ? one->outputs[1].descriptor : -1, POLLIN, 0},
        };
        poll(waits, 5, one->has_ended && one->has_terminal ? TERMINAL_MS : -1);
        if (waits[0].revents)
            reap(one);
        if (waits[1].revents && !talk(one, waits[1].revents))
            return false;
        if (waits[2].revents && one->input >= 0)
            feed(one);
        for (int index = 0; index < 2; index++) {
            if (waits[3 + index].revents && can_send(one, &one->outputs[index]))
                read_output(one, STDOUT + (enum kind)index);
        }
        if (one->has_ended)
            read_rest(one);
    }
    return true;
}

static void open_pipes(int connection, int ours[3], int theirs[3])
{
    int input[2], output[2], error[2];
    if (pipe2(input, O_CLOEXEC) < 0 || pipe2(output, O_CLOEXEC) < 0 || pipe2(error, O_CLOEXEC) < 0) {
        refuse(connection, "unavailable", "no pipes can be opened inside: %s", reason_of(errno));
        _exit(0);
    }
    memcpy(ours, (int[]){input[1], output[0], error[0]}, 3 * sizeof *ours);
    memcpy(theirs, (int[]){input[0], output[1], error[1]}, 3 * sizeof *theirs);
}

static void open_terminal(int connection, const struct json *terminal, int ours[3], int theirs[3])
{
    int master, slave;
    if (openpty(&master, &slave, NULL, NULL, NULL) < 0) {
        refuse(connection, "failed_precondition", "a sandbox has no terminals on this machine: %s", reason_of(errno));
        _exit(0);
    }
    resize(master, (unsigned)json_number(terminal, "columns"), (unsigned)json_number(terminal, "rows"));
    memcpy(ours, (int[]){dup(master), master, -1}, 3 * sizeof *ours);
    memcpy(theirs, (int[]){slave, slave, slave}, 3 * sizeof *theirs);
}

_Noreturn void serve_stream(int connection, const struct sandbox *sandbox, const struct json *request)
{
    const struct json *terminal = json_get(request, "terminal");
    bool has_terminal = terminal->kind == JSON_OBJECT;
    int ours[3], theirs[3];
    /* Before the fork, so that an early end is noticed. */
    int watch = watch_children();
    if (has_terminal)
        open_terminal(connection, terminal, ours, theirs);
    else
        open_pipes(connection, ours, theirs);
    pid_t pid = fork();
    if (pid < 0) {
        refuse(connection, "unavailable", "no process can be started inside: %s", reason_of(errno));
        _exit(0);
    }
    if (pid == 0) {
        /* Ends the command with this process. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        detach(theirs);
        if (has_terminal && ioctl(0, TIOCSCTTY, 0) < 0)
            fail_to_run(reason_of(errno));
        run_program(&(struct program){
            .argv = json_get(request, "argv"),
            .env = {sandbox->env, json_get(request, "env")},
            .term = has_terminal ? "TERM=xterm-256color" : NULL,
            .working_dir = sandbox->working_dir,
            .asked_dir = json_text(request, "workingDir"),
        });
    }
    for (int index = 0; index < (has_terminal ? 1 : 3); index++)
        close(theirs[index]);
    struct conversation one = {
        .connection = connection,
        .watch = watch,
        .pid = pid,
        .has_terminal = has_terminal,
        .input = ours[0],
        .outputs = {{.descriptor = ours[1], .credit = WINDOW}, {.descriptor = ours[2], .credit = WINDOW}},
    };
    for (int index = 0; index < 3; index++) {
        if (ours[index] >= 0)
            fcntl(ours[index], F_SETFL, O_NONBLOCK);
    }
    fcntl(connection, F_SETFL, O_NONBLOCK);
    if (!converse(&one)) {
        end_command(&one);
        _exit(0);
    }
    tell_end(&one);
    _exit(0);
}
