/* Runs one command inside a running sandbox. A child of init does this and answers the caller itself. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "access.h"
#include "account.h"
#include "frames.h"
#include "moment.h"
#include "program.h"
#include "reason.h"
#include "refusals.h"

enum {
    CHUNK = 65536,
    SECONDS = 10,
    /* The most output that is still read from the pipes of an ended command. */
    MOST_DRAIN_READS = 64,
    TIMED_OUT = -1,
};

struct output {
    int descriptor;
    bool is_open;
    size_t largest;
    struct buffer bytes;
    bool is_truncated;
};

struct command {
    pid_t pid;
    int watch;
    int stdin_writer;
    const char *input;
    size_t input_left;
    struct output outputs[2];
};

/* Reads available output. Returns false at its end, or when none is available. */
static bool read_output(struct output *output)
{
    static char chunk[CHUNK];
    ssize_t count = read(output->descriptor, chunk, sizeof chunk);
    if (count <= 0) {
        output->is_open = output->is_open && count < 0 && errno == EAGAIN;
        return false;
    }
    size_t room = output->largest - output->bytes.size;
    if ((size_t)count > room) {
        output->is_truncated = true;
        count = (ssize_t)room;
    }
    buffer_add(&output->bytes, chunk, (size_t)count);
    return true;
}

/* Reads the command's remaining output without waiting for an end: its children may keep the pipes open. */
static void drain(struct command *command)
{
    for (int index = 0; index < 2; index++) {
        for (int reads = 0; reads < MOST_DRAIN_READS && read_output(&command->outputs[index]); reads++)
            ;
    }
}

static void end_command(struct command *command)
{
    kill(-command->pid, SIGKILL);
    kill(command->pid, SIGKILL);
    waitpid(command->pid, NULL, 0);
    drain(command);
}

static void write_input(struct command *command)
{
    size_t size = command->input_left < CHUNK ? command->input_left : CHUNK;
    ssize_t count = write(command->stdin_writer, command->input, size);
    if (count < 0 && errno == EAGAIN)
        return;
    /* A command that stops reading its input does not fail. */
    size_t done = count < 0 ? command->input_left : (size_t)count;
    command->input += done;
    command->input_left -= done;
    if (command->input_left == 0) {
        close(command->stdin_writer);
        command->stdin_writer = -1;
    }
}

/* Returns the return code or `TIMED_OUT`. Ends this process when the caller disconnects. */
static int wait_for(struct command *command, int connection, double timeout_ms)
{
    long long deadline = after_ms(timeout_ms);
    for (;;) {
        if (has_passed(deadline)) {
            end_command(command);
            return TIMED_OUT;
        }
        struct output *outputs = command->outputs;
        /* `poll` ignores negative descriptors. */
        struct pollfd waits[] = {
            {command->watch, POLLIN, 0},
            {connection, POLLIN, 0},
            {outputs[0].is_open ? outputs[0].descriptor : -1, POLLIN, 0},
            {outputs[1].is_open ? outputs[1].descriptor : -1, POLLIN, 0},
            {command->stdin_writer, POLLOUT, 0},
        };
        poll(waits, sizeof waits / sizeof *waits, remaining_ms(deadline));
        if (waits[1].revents) {
            end_command(command);
            _exit(0);
        }
        for (int index = 0; index < 2; index++) {
            if (waits[2 + index].revents)
                read_output(&outputs[index]);
        }
        if (waits[4].revents)
            write_input(command);
        if (waits[0].revents) {
            int status;
            drain_signals(command->watch);
            if (waitpid(command->pid, &status, WNOHANG) == command->pid) {
                drain(command);
                return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            }
        }
    }
}

/*
 * Reports a failure of memory: otherwise the caller would take the closed connection for the end of the
 * sandbox.
 */
_Noreturn static void refuse_command(int connection, const char *what, int number)
{
    refuse(connection, "unavailable", "%s: %s", what, reason_of(number));
    _exit(1);
}

/* Refuses the request and ends this process if no process or pipe is available. */
static void start(struct command *command, int connection, const struct sandbox *sandbox, const struct json *request)
{
    int input[2], output[2], error[2];
    struct account account;
    if (!find_account(sandbox, json_text(request, "user"), &account)) {
        refuse(connection, "unauthenticated", "the sandbox has no user %s", shown(json_text(request, "user")));
        _exit(0);
    }
    command->watch = watch_children();
    if (pipe2(input, O_CLOEXEC) < 0 || pipe2(output, O_CLOEXEC) < 0 || pipe2(error, O_CLOEXEC) < 0)
        refuse_command(connection, "no pipes can be opened inside", errno);
    command->pid = fork();
    if (command->pid < 0)
        refuse_command(connection, "no process can be started inside", errno);
    if (command->pid == 0) {
        bool is_user = become_account(sandbox, &account);
        int number = errno;
        detach((int[]){input[0], output[1], error[1]});
        if (!is_user)
            fail_to_run(reason_of(number));
        /* Ends the command with this process. Comes after the change of user, which resets the setting. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_program(&(struct program){
            .argv = json_get(request, "argv"),
            .env = {sandbox->env, json_get(request, "env")},
            .working_dir = sandbox->working_dir,
            .asked_dir = json_text(request, "workingDir"),
        });
    }
    close(input[0]);
    close(output[1]);
    close(error[1]);
    command->stdin_writer = input[1];
    for (int index = 0; index < 2; index++) {
        struct output *one = &command->outputs[index];
        one->descriptor = index == 0 ? output[0] : error[0];
        one->is_open = true;
        one->largest = (size_t)json_number(request, "maxOutputBytes");
        fcntl(one->descriptor, F_SETFL, O_NONBLOCK);
    }
    fcntl(command->stdin_writer, F_SETFL, O_NONBLOCK);
}

_Noreturn void serve_command(int connection, const struct sandbox *sandbox)
{
    static struct buffer held, answer;
    static struct command command;
    struct json request;
    if (!keep_only(connection, sandbox->accounts_namespace))
        refuse_command(connection, "the command cannot be prepared inside", errno);
    signal(SIGPIPE, SIG_IGN);
    set_timeout(connection, SECONDS);
    refuse_when_without_memory(connection, "the memory of the sandbox is not enough for the command and its output");
    if (!read_message(connection, LARGEST_FRAME, &held, &request)) {
        refuse(connection, "internal", "the request for a command must be a JSON object");
        _exit(1);
    }
    if (json_get(&request, "argv")->kind != JSON_ARRAY) {
        refuse(connection, "internal", "the request for a command must have argv");
        _exit(1);
    }
    start(&command, connection, sandbox, &request);
    const struct json *input = json_get(&request, "stdin");
    command.input = input->text;
    command.input_left = input->size;
    if (command.input_left == 0) {
        close(command.stdin_writer);
        command.stdin_writer = -1;
    }
    int code = wait_for(&command, connection, json_number(&request, "timeoutMs"));
    struct output *outputs = command.outputs;
    bool is_truncated = outputs[0].is_truncated || outputs[1].is_truncated;
    send_format(connection, "{\"ok\":true,\"returncode\":%d,\"truncated\":%s}", code, is_truncated ? "true" : "false");
    for (int index = 0; index < 2; index++)
        add_frame(&answer, outputs[index].bytes.data, outputs[index].bytes.size);
    send_all(connection, answer.data, answer.size);
    _exit(0);
}
