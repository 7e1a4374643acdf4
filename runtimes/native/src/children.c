#include "children.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "access.h"
#include "account.h"
#include "kernel.h"
#include "moment.h"
#include "program.h"
#include "reason.h"

enum {
    /* The time for which an ended process can be found. */
    REMEMBERED_MS = 30000,
    /* The most ended processes that are remembered, or whose output is discarded for their descendants. */
    MOST_ENDED = 64,
    /* The most output of an ended process that is still read. Descendants may write on. */
    MOST_LEFT = 1048576,
    /* The time for which listeners that read slowly delay the report of an end. */
    DRAIN_MS = 5000,
    /* The time a terminal may need to deliver the last output. */
    TERMINAL_MS = 100,
    LARGEST_REPORT = 8192,
};

/* The first byte of a report; any other begins the sentence of an invalid request. */
enum report { TERMINAL_REPORT = 1, UNAVAILABLE_REPORT, NO_TERMINAL_REPORT };

struct child *children;

/* The start */

_Noreturn static void fail_with_report(int report, enum report kind, const char *what)
{
    struct buffer sentence = {0};
    buffer_format(&sentence, "%c%s: %s", (char)kind, what, reason_of(errno));
    (void)!send(report, sentence.data, sentence.size, MSG_NOSIGNAL);
    _exit(1);
}

void resize_terminal(int terminal, const struct json *size)
{
    struct winsize wanted = {.ws_row = (unsigned short)json_number(size, "rows"), .ws_col = (unsigned short)json_number(size, "columns")};
    ioctl(terminal, TIOCSWINSZ, &wanted);
}

/*
 * Opens a terminal as the user, who then owns it, and passes it to the table. Returns the descriptor for the
 * process.
 */
static int open_own_terminal(int report, const struct json *size)
{
    int master, slave;
    static const char kind = TERMINAL_REPORT;
    if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
        fail_with_report(report, NO_TERMINAL_REPORT, "a sandbox has no terminals on this machine");
    resize_terminal(master, size);
    if (!send_with(report, &kind, 1, &master, 1))
        _exit(1);
    return slave;
}

static struct json text_item(const char *text)
{
    return (struct json){.kind = JSON_STRING, .text = (char *)text, .size = strlen(text)};
}

/* Images without Bash have another shell, which takes the same options. */
static void use_shell_of_image(const struct json *argv)
{
    struct json *program = argv->items;
    if (strcmp(program->text, "/bin/bash") == 0 && access("/bin/bash", F_OK) < 0 && errno == ENOENT)
        *program = text_item("/bin/sh");
}

_Noreturn static void become_child(const struct sandbox *sandbox, const struct json *request, const struct account *account, int theirs[3],
                                   int report)
{
    struct json own[] = {text_item("HOME"), text_item(account->home), text_item("USER"), text_item(account->name), text_item("LOGNAME"),
                         text_item(account->name)};
    const struct json own_env = {.kind = JSON_OBJECT, .items = own, .count = sizeof own / sizeof *own};
    const struct json *terminal = json_get(request, "terminal");
    bool has_terminal = terminal->kind == JSON_OBJECT;
    struct account usual;
    bool is_usual = find_account(sandbox, "", &usual) && strcmp(usual.name, account->name) == 0;
    prefer_as_oom_victim();
    if (!become_account(sandbox, account))
        fail_with_report(report, UNAVAILABLE_REPORT, "changing to its user failed");
    if (has_terminal)
        theirs[0] = theirs[1] = theirs[2] = open_own_terminal(report, terminal);
    report = detach_with(theirs, report);
    if (has_terminal && ioctl(0, TIOCSCTTY, 0) < 0)
        fail_with_report(report, UNAVAILABLE_REPORT, "the terminal cannot be used");
    /* Ends the process with the table. Comes after the change of user, which resets the setting. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char *asked_dir = json_text(request, "workingDir");
    if (sandbox->listed_default != NULL)
        use_shell_of_image(json_get(request, "argv"));
    run_program(&(struct program){
        .argv = json_get(request, "argv"),
        /* Another account's variables replace those of the sandbox, which describe the usual account. */
        .env = {is_usual ? &own_env : sandbox->env, is_usual ? sandbox->env : &own_env, json_get(request, "env")},
        .term = has_terminal ? "TERM=xterm-256color" : NULL,
        .working_dir = is_usual && asked_dir[0] == '\0' ? sandbox->working_dir : account->home,
        .asked_dir = asked_dir,
        .keeps_path = sandbox->listed_default != NULL,
        .report = report,
    });
}

/* The descriptors of a start. */
struct ends {
    /* Reports: the table's side, and the process's. */
    int report[2];
    int ours[3], theirs[3];
};

static void close_all(const int descriptors[3])
{
    for (int index = 0; index < 3; index++) {
        if (descriptors[index] >= 0)
            close(descriptors[index]);
    }
}

static void close_ends(struct ends *ends)
{
    close_all(ends->ours);
    close_all(ends->theirs);
    if (ends->report[0] >= 0)
        close(ends->report[0]);
    if (ends->report[1] >= 0)
        close(ends->report[1]);
}

/* With a terminal the process opens it. Returns false with errno. */
static bool open_ends(struct ends *ends, bool has_terminal, bool has_input)
{
    *ends = (struct ends){{-1, -1}, {-1, -1, -1}, {-1, -1, -1}};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends->report) < 0)
        return false;
    for (int index = has_terminal ? 3 : 0; index < 3; index++) {
        int pair[2];
        bool is_input = index == 0;
        if (is_input && !has_input) {
            ends->theirs[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
            if (ends->theirs[0] < 0)
                return false;
            continue;
        }
        if (pipe2(pair, O_CLOEXEC) < 0)
            return false;
        ends->ours[index] = pair[is_input ? 1 : 0];
        ends->theirs[index] = pair[is_input ? 0 : 1];
        fcntl(ends->ours[index], F_SETFL, O_NONBLOCK);
    }
    return true;
}

static void add_facts(struct child *child, const struct json *request)
{
    static const char *const names[] = {"argv", "env", "workingDir", "user", "tag"};
    struct buffer *facts = &child->facts;
    buffer_format(facts, "\"startedAtMs\":%lld,\"terminal\":%s", now_ms(), child->has_terminal ? "true" : "false");
    for (size_t index = 0; index < sizeof names / sizeof *names; index++) {
        buffer_format(facts, ",\"%s\":", names[index]);
        json_write(facts, json_get(request, names[index]));
    }
}

static struct child *add_child(const struct json *request, pid_t pid, const struct ends *ends)
{
    struct child *made = allocate(sizeof *made), **place = &children;
    double limit_ms = json_number(request, "timeLimitMs");
    const struct json *tag = json_get(request, "tag");
    *made = (struct child){
        .state = STARTING,
        .pid = pid,
        .has_terminal = json_get(request, "terminal")->kind == JSON_OBJECT,
        .has_input = json_is_true(request, "stdin"),
        .is_hidden = json_is_true(request, "hidden"),
        .report = ends->report[0],
        .input = ends->ours[0],
        .outputs = {{.descriptor = ends->ours[1]}, {.descriptor = ends->ours[2]}},
        .deadline = limit_ms > 0 ? after_ms(limit_ms) : NEVER,
        .tag = tag->kind == JSON_STRING ? copy_text(tag->text, tag->size) : NULL,
    };
    add_facts(made, request);
    while (*place != NULL)
        place = &(*place)->next;
    *place = made;
    return made;
}

struct child *start_child(const struct sandbox *sandbox, const struct json *request, const char **code, struct buffer *sentence)
{
    struct account account;
    struct ends ends;
    const char *user = json_text(request, "user");
    if (!find_account(sandbox, user, &account)) {
        *code = "unauthenticated";
        buffer_format(sentence, "the sandbox has no user %.64s", user);
        return NULL;
    }
    *code = "unavailable";
    if (!open_ends(&ends, json_get(request, "terminal")->kind == JSON_OBJECT, json_is_true(request, "stdin"))) {
        buffer_format(sentence, "no pipes can be opened inside: %s", reason_of(errno));
        close_ends(&ends);
        return NULL;
    }
    pid_t pid = fork();
    if (pid == 0)
        become_child(sandbox, request, &account, ends.theirs, ends.report[1]);
    if (pid < 0) {
        buffer_format(sentence, "no process can be started inside: %s", reason_of(errno));
        close_ends(&ends);
        return NULL;
    }
    close_all(ends.theirs);
    close(ends.report[1]);
    return add_child(request, pid, &ends);
}

static void note_terminal(struct child *child)
{
    char kind;
    int master;
    if (receive_with(child->report, &kind, 1, &master, 1) != 1)
        return;
    fcntl(master, F_SETFL, O_NONBLOCK);
    child->outputs[0].descriptor = master;
    child->input = fcntl(master, F_DUPFD_CLOEXEC, 0);
}

static void end_report(struct child *child)
{
    close(child->report);
    child->report = -1;
    child->state = child->failure.size > 0 ? FAILED : child->is_reaped ? DRAINING : RUNNING;
}

void read_report(struct child *child)
{
    char text[LARGEST_REPORT];
    while (child->report >= 0) {
        ssize_t count = recv(child->report, text, sizeof text, MSG_PEEK | MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (count <= 0) {
            end_report(child);
            return;
        }
        if (text[0] == TERMINAL_REPORT) {
            note_terminal(child);
            continue;
        }
        (void)!recv(child->report, text, sizeof text, MSG_DONTWAIT);
        bool has_kind = text[0] == UNAVAILABLE_REPORT || text[0] == NO_TERMINAL_REPORT;
        child->failure_code = text[0] == UNAVAILABLE_REPORT   ? "unavailable"
                              : text[0] == NO_TERMINAL_REPORT ? "failed_precondition"
                                                              : "invalid_request";
        buffer_format(&child->failure, "%.*s", (int)count - has_kind, text + has_kind);
    }
}

/* The life */

bool is_alive(const struct child *child)
{
    return child->state == STARTING || child->state == RUNNING;
}

void reap_children(void)
{
    for (struct child *child = children; child != NULL; child = child->next) {
        if (child->is_reaped || waitpid(child->pid, &child->status, WNOHANG) != child->pid)
            continue;
        child->is_reaped = true;
        child->ended_at = monotonic_ms();
        child->deadline = NEVER;
        for (int index = 0; index < 2; index++) {
            child->outputs[index].is_left = true;
            child->outputs[index].most_left = MOST_LEFT;
        }
        if (child->state == RUNNING)
            child->state = DRAINING;
        read_report(child);
        close_input_of(child);
    }
}

void end_late_children(void)
{
    for (struct child *child = children; child != NULL; child = child->next) {
        if (!is_alive(child) || !has_passed(child->deadline))
            continue;
        child->deadline = NEVER;
        child->is_timed_out = true;
        kill(child->pid, SIGKILL);
    }
}

static bool is_named(const struct child *child, const struct json *request)
{
    const struct json *pid = json_get(request, "pid"), *tag = json_get(request, "tag");
    if (pid->kind == JSON_NUMBER)
        return child->pid == (pid_t)pid->number;
    return tag->kind == JSON_STRING && child->tag != NULL && strcmp(child->tag, tag->text) == 0;
}

static bool is_remembered(const struct child *child)
{
    return child->state != FAILED && (child->state != ENDED || !has_passed(child->ended_at + REMEMBERED_MS));
}

struct child *find_child(const struct json *request)
{
    struct child *found = NULL;
    for (struct child *child = children; child != NULL; child = child->next) {
        if (is_named(child, request) && is_remembered(child) && (found == NULL || is_alive(child) || !is_alive(found)))
            found = child;
    }
    return found;
}

size_t count_children(bool is_hidden)
{
    size_t count = 0;
    for (const struct child *child = children; child != NULL; child = child->next)
        count += child->is_hidden == is_hidden && child->state != ENDED;
    return count;
}

void close_input_of(struct child *child)
{
    if (child->input >= 0)
        close(child->input);
    child->input = -1;
}

/* Outputs */

static void close_output(struct child_output *output)
{
    if (output->descriptor >= 0)
        close(output->descriptor);
    output->descriptor = -1;
    output->is_left = false;
}

ssize_t read_child(struct child_output *output, char data[LARGEST_OUTPUT])
{
    ssize_t count = output->descriptor < 0 ? 0 : read(output->descriptor, data, LARGEST_OUTPUT);
    if (count > 0)
        return count;
    /* A terminal ends with EIO. */
    if (count == 0 || (errno != EAGAIN && errno != EINTR))
        close_output(output);
    return -1;
}

bool is_late(const struct child *child)
{
    return has_passed(child->ended_at + DRAIN_MS);
}

void note_rest(struct child *child, struct child_output *output, ssize_t count)
{
    output->most_left -= count > 0 ? count : 0;
    bool is_empty = count < 0 && (!child->has_terminal || has_passed(child->ended_at + TERMINAL_MS));
    if (is_empty || output->most_left <= 0 || is_late(child))
        output->is_left = false;
}

/* Memory */

static void free_child(struct child *child)
{
    close_output(&child->outputs[0]);
    close_output(&child->outputs[1]);
    close_input_of(child);
    if (child->report >= 0)
        close(child->report);
    free(child->tag);
    buffer_free(&child->facts);
    buffer_free(&child->failure);
    free(child);
}

/* True if descendants of an ended process may still write to its outputs, which are discarded. */
static bool has_writers(const struct child *child)
{
    return child->outputs[0].descriptor >= 0 || child->outputs[1].descriptor >= 0;
}

void forget_children(bool (*is_in_use)(const struct child *))
{
    size_t ended = 0;
    for (const struct child *child = children; child != NULL; child = child->next)
        ended += child->state == ENDED;
    for (struct child **place = &children; *place != NULL;) {
        struct child *child = *place;
        bool is_over = child->state == ENDED && (ended > MOST_ENDED || (!is_remembered(child) && !has_writers(child)));
        if ((!is_over && !(child->state == FAILED && child->is_reaped)) || is_in_use(child)) {
            place = &child->next;
            continue;
        }
        ended -= child->state == ENDED;
        *place = child->next;
        free_child(child);
    }
}

long long next_moment(void)
{
    long long next = NEVER;
    for (const struct child *child = children; child != NULL; child = child->next) {
        long long moment = child->deadline;
        if (child->state == DRAINING)
            moment = has_passed(child->ended_at + TERMINAL_MS) ? child->ended_at + DRAIN_MS : child->ended_at + TERMINAL_MS;
        else if (child->state == ENDED && is_remembered(child))
            moment = child->ended_at + REMEMBERED_MS;
        if (moment != NEVER && (next == NEVER || moment < next))
            next = moment;
    }
    return next;
}
