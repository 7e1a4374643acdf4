#include "table.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "children.h"
#include "frames.h"
#include "kernel.h"
#include "moment.h"
#include "peers.h"
#include "program.h"
#include "reason.h"
#include "rights.h"
#include "title.h"

enum {
    MOST_PEERS = 256,
    /* Also in `src/sandbox/access.ts`. */
    MOST_PROCESSES = 128,
    MOST_HIDDEN = 16,
    /* The largest request: the kernel accepts about 2 MB of arguments and variables. */
    LARGEST_REQUEST = 4 * 1024 * 1024,
    CHUNK = 65536,
    REQUEST_MS = 10000,
};

static const struct sandbox *sandbox;
static bool is_ending;

/* Requests */

static void refuse_as_missing(struct peer *peer, const struct json *request)
{
    const struct json *pid = json_get(request, "pid");
    if (pid->kind == JSON_NUMBER)
        refuse_peer(peer, "not_found", "there is no process %.0f in this sandbox", pid->number);
    else
        refuse_peer(peer, "not_found", "there is no process with the tag %.200s in this sandbox", json_text(request, "tag"));
}

static void start(struct peer *peer, const struct json *request)
{
    const char *code;
    struct buffer sentence = {0};
    bool is_hidden = json_is_true(request, "hidden");
    int most = is_hidden ? MOST_HIDDEN : MOST_PROCESSES;
    if (json_get(request, "argv")->kind != JSON_ARRAY || json_get(request, "argv")->count == 0) {
        refuse_peer(peer, "invalid_request", "there is no program to start");
        return;
    }
    if (is_ending || count_children(is_hidden) >= (size_t)most) {
        refuse_peer(peer, "resource_exhausted", "too many processes run in this sandbox (%d)", most);
        return;
    }
    peer->child = start_child(sandbox, request, &code, &sentence);
    if (peer->child == NULL)
        refuse_peer(peer, code, "%s", sentence.data);
    else
        peer->state = LISTENING;
    buffer_free(&sentence);
}

static void list(struct peer *peer)
{
    struct buffer text = {0};
    buffer_format(&text, "{\"ok\":true,\"processes\":[");
    const char *comma = "";
    for (const struct child *child = children; child != NULL; child = child->next) {
        if (child->state != RUNNING || child->is_hidden)
            continue;
        buffer_format(&text, "%s{\"pid\":%d,%.*s}", comma, (int)child->pid, (int)child->facts.size, child->facts.data);
        comma = ",";
    }
    buffer_add(&text, "]}", 2);
    add_frame(&peer->unsent, text.data, text.size);
    buffer_free(&text);
    peer->state = CLOSING;
}

static void signal_child(struct peer *peer, const struct child *child, int number)
{
    if (kill(child->pid, number) == 0)
        accept_request(peer);
    else
        refuse_peer(peer, errno == EINVAL ? "invalid_request" : "internal", "signal %d cannot be sent: %s", number, reason_of(errno));
}

static void close_input(struct peer *peer, struct child *child)
{
    if (child->has_terminal) {
        refuse_peer(peer, "failed_precondition", "process %d has a terminal and no separate standard input", (int)child->pid);
        return;
    }
    child->input_ends = true;
    write_input(child);
    accept_request(peer);
}

static void resize(struct peer *peer, const struct child *child, const struct json *request)
{
    if (!child->has_terminal) {
        refuse_peer(peer, "failed_precondition", "process %d has no terminal", (int)child->pid);
        return;
    }
    if (child->input >= 0)
        resize_terminal(child->input, json_get(request, "terminal"));
    accept_request(peer);
}

static bool is_operation(const struct json *request, const char *name)
{
    return strcmp(json_text(request, "op"), name) == 0;
}

static void serve_request(struct peer *peer, const struct json *request)
{
    /* An ended process must not be found because its end is not known yet. */
    reap_children();
    if (is_operation(request, "start")) {
        start(peer, request);
        return;
    }
    if (is_operation(request, "list")) {
        list(peer);
        return;
    }
    struct child *child = find_child(request);
    if (child == NULL || (!is_alive(child) && !is_operation(request, "attach"))) {
        refuse_as_missing(peer, request);
    } else if (is_operation(request, "attach")) {
        peer->child = child;
        peer->state = LISTENING;
    } else if (is_operation(request, "input")) {
        peer->child = child;
        peer->state = FEEDING;
        peer->is_for_terminal = json_is_true(request, "terminal");
        if (can_take_input(peer))
            answer(peer, "{\"ok\":true}");
    } else if (is_operation(request, "closeInput")) {
        close_input(peer, child);
    } else if (is_operation(request, "signal")) {
        signal_child(peer, child, (int)json_number(request, "number"));
    } else if (is_operation(request, "resize")) {
        resize(peer, child, request);
    } else {
        refuse_peer(peer, "internal", "a process table has no operation %.64s", json_text(request, "op"));
    }
}

/* Peers */

/* Serves a request that has arrived as a whole. */
static void read_request(struct peer *peer)
{
    struct json request = {0};
    if (peer->received.size < FRAME_HEAD)
        return;
    size_t size = get_u32(peer->received.data);
    if (size > LARGEST_REQUEST) {
        refuse_peer(peer, "invalid_request", "the request to the process table is larger than %d bytes", LARGEST_REQUEST);
        return;
    }
    if (peer->received.size < FRAME_HEAD + size)
        return;
    struct buffer held = {0};
    buffer_add(&held, peer->received.data + FRAME_HEAD, size);
    buffer_room(&held, 1);
    buffer_take(&peer->received, FRAME_HEAD + size);
    peer->deadline = NEVER;
    if (json_read(&request, held.data, size) && request.kind == JSON_OBJECT)
        serve_request(peer, &request);
    else
        refuse_peer(peer, "internal", "the request to the process table must be a JSON object");
    json_free(&request);
    buffer_free(&held);
}

static void read_peer(struct peer *peer)
{
    ssize_t count = recv(peer->connection, buffer_room(&peer->received, CHUNK), CHUNK, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        peer->state = GONE;
        return;
    }
    peer->received.size += (size_t)count;
    if (peer->state == REQUESTING)
        read_request(peer);
    if (peer->state == FEEDING && !queue_input(peer))
        peer->state = GONE;
    /* Nothing more is expected; the bytes are dropped. */
    if (peer->state == LISTENING || peer->state == CLOSING || peer->state == LINGERING)
        buffer_take(&peer->received, peer->received.size);
}

static size_t count_peers(void)
{
    size_t count = 0;
    for (const struct peer *peer = peers; peer != NULL; peer = peer->next)
        count++;
    return count;
}

static void accept_peers(int control)
{
    char passed;
    int connection;
    ssize_t count = receive_with(control, &passed, 1, &connection, 1);
    if (count < 0)
        /* Init has ended. */
        _exit(0);
    if (count == 0)
        return;
    struct peer *made = allocate(sizeof *made);
    *made = (struct peer){.next = peers, .connection = connection, .deadline = after_ms(REQUEST_MS)};
    peers = made;
    if (count_peers() > MOST_PEERS)
        refuse_peer(made, "resource_exhausted", "too many clients of the processes of this sandbox are connected (%d)", MOST_PEERS);
}

/* The loop */

/* What a descriptor of `poll` belongs to: a peer, or one of the descriptors of a process. */
enum part { PEER, REPORT, INPUT, FIRST_OUTPUT };
struct owner {
    struct peer *peer;
    struct child *child;
    int part;
};

static struct pollfd *waits;
static struct owner *owners;
static size_t wait_count, wait_capacity;

static void add_wait(int descriptor, short events, struct owner owner)
{
    if (wait_count == wait_capacity) {
        wait_capacity = wait_capacity ? 2 * wait_capacity : 16;
        waits = reallocate(waits, wait_capacity * sizeof *waits);
        owners = reallocate(owners, wait_capacity * sizeof *owners);
    }
    waits[wait_count] = (struct pollfd){descriptor, events, 0};
    owners[wait_count++] = owner;
}

static void add_waits(int control, int signals)
{
    wait_count = 0;
    add_wait(control, POLLIN, (struct owner){0});
    add_wait(signals, POLLIN, (struct owner){0});
    for (struct peer *peer = peers; peer != NULL; peer = peer->next)
        add_wait(peer->connection, (short)((peer->turn > 0 ? 0 : POLLIN) | (peer->unsent.size > 0 ? POLLOUT : 0)),
                 (struct owner){.peer = peer, .part = PEER});
    note_demands();
    for (struct child *child = children; child != NULL; child = child->next) {
        if (child->report >= 0)
            add_wait(child->report, POLLIN, (struct owner){.child = child, .part = REPORT});
        if (child->input >= 0 && child->is_fed)
            add_wait(child->input, POLLOUT, (struct owner){.child = child, .part = INPUT});
        for (int index = 0; index < 2 && child->state >= RUNNING && !child->is_blocked; index++) {
            if (child->outputs[index].descriptor >= 0)
                add_wait(child->outputs[index].descriptor, POLLIN, (struct owner){.child = child, .part = FIRST_OUTPUT + index});
        }
    }
}

static void read_signals(int signals)
{
    struct signalfd_siginfo about;
    while (read(signals, &about, sizeof about) == sizeof about)
        is_ending = is_ending || about.ssi_signo == SIGTERM;
    reap_children();
}

static void serve_peer(struct peer *peer, short events)
{
    if (peer->turn == 0 && (events & ~POLLOUT))
        read_peer(peer);
    else if (events & (POLLHUP | POLLERR))
        peer->state = GONE;
}

static void serve_waits(void)
{
    for (size_t index = 2; index < wait_count; index++) {
        struct child *child = owners[index].child;
        if (waits[index].revents == 0)
            continue;
        if (owners[index].part == PEER)
            serve_peer(owners[index].peer, waits[index].revents);
        else if (owners[index].part == REPORT)
            read_report(child);
        else if (owners[index].part == INPUT)
            write_input(child);
        else
            copy_output(child, owners[index].part - FIRST_OUTPUT);
    }
}

/* Returns the time until something has to happen without an event. */
static int pause_ms(void)
{
    long long next = next_moment();
    for (const struct peer *peer = peers; peer != NULL; peer = peer->next) {
        if (peer->deadline != NEVER && (next == NEVER || peer->deadline < next))
            next = peer->deadline;
    }
    return remaining_ms(next);
}

static int watch_signals(void)
{
    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGTERM);
    sigprocmask(SIG_SETMASK, &watched, NULL);
    return signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
}

_Noreturn void run_table(int control, const struct sandbox *told)
{
    sandbox = told;
    reset_signals();
    signal(SIGPIPE, SIG_IGN);
    setsid();
    forbid_inspection();
    show_title("rookery: processes");
    if (!keep_only(control, sandbox->accounts_namespace))
        _exit(1);
    int signals = watch_signals();
    /* Without a pid namespace the end of init does not end this process. */
    if (signals < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        _exit(1);
    while (!is_ending || count_children(false) + count_children(true) > 0) {
        add_waits(control, signals);
        poll(waits, (nfds_t)wait_count, pause_ms());
        if (waits[1].revents)
            read_signals(signals);
        serve_waits();
        if (waits[0].revents)
            accept_peers(control);
        end_late_children();
        /* A start is reported before the rest of a process that has ended already. */
        update_peers();
        for (struct child *child = children; child != NULL; child = child->next) {
            if (child->state == DRAINING)
                drain_child(child);
        }
        update_peers();
        forget_children(is_in_use);
    }
    _exit(0);
}
