#include "peers.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frames.h"
#include "moment.h"

/* The kinds of frames to a listener. */
enum { STDOUT_FRAME = 1, STDERR_FRAME, EXIT_FRAME };

enum {
    /* The largest frame of input. */
    LARGEST_INPUT = 65536,
    /* The most output that waits for one listener. A process pauses while one of its listeners has more. */
    WINDOW = 65536,
    /* The longest wait for a client that has got its last answer to close. */
    LINGER_MS = 10000,
};

struct peer *peers;
static unsigned long turns;

/* Answers */

static void flush_peer(struct peer *peer)
{
    while (peer->unsent.size > 0) {
        ssize_t count = send(peer->connection, peer->unsent.data, peer->unsent.size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            if (errno != EAGAIN)
                peer->state = GONE;
            return;
        }
        buffer_take(&peer->unsent, (size_t)count);
    }
    if (peer->state == CLOSING) {
        /* A close would break a frame that the client sends now, and the client would not read the answer. */
        shutdown(peer->connection, SHUT_WR);
        peer->state = LINGERING;
        peer->deadline = after_ms(LINGER_MS);
    }
}

void answer(struct peer *peer, const char *format, ...)
{
    struct buffer text = {0};
    va_list arguments;
    va_start(arguments, format);
    buffer_format_list(&text, format, arguments);
    va_end(arguments);
    add_frame(&peer->unsent, text.data, text.size);
    buffer_free(&text);
}

void refuse_peer(struct peer *peer, const char *code, const char *format, ...)
{
    struct buffer sentence = {0}, message = {0};
    va_list arguments;
    va_start(arguments, format);
    buffer_format_list(&sentence, format, arguments);
    va_end(arguments);
    json_write_bytes(&message, sentence.data);
    answer(peer, "{\"ok\":false,\"code\":\"%s\",\"message\":%.*s}", code, (int)message.size, message.data);
    buffer_free(&sentence);
    buffer_free(&message);
    peer->state = CLOSING;
}

void accept_request(struct peer *peer)
{
    answer(peer, "{\"ok\":true}");
    peer->state = CLOSING;
}

/* Listeners */

static void add_output(struct peer *peer, int kind, const char *data, size_t size)
{
    unsigned char head[FRAME_HEAD + 1];
    put_u32(head, size + 1);
    head[FRAME_HEAD] = (unsigned char)kind;
    buffer_add(&peer->unsent, head, sizeof head);
    buffer_add(&peer->unsent, data, size);
}

static void add_exit(struct peer *peer, const struct child *child)
{
    bool is_killed = WIFSIGNALED(child->status);
    char payload[6];
    put_u32(payload, is_killed ? 0 : (unsigned long)WEXITSTATUS(child->status));
    payload[4] = (char)(is_killed ? WTERMSIG(child->status) : 0);
    payload[5] = child->is_timed_out && is_killed;
    add_output(peer, EXIT_FRAME, payload, sizeof payload);
    peer->child = NULL;
    peer->state = CLOSING;
}

/* Reports the start, or its failure, and later the end. */
static void update_listener(struct peer *peer)
{
    struct child *child = peer->child;
    if (child->state == STARTING)
        return;
    if (child->state == FAILED) {
        peer->child = NULL;
        refuse_peer(peer, child->failure_code, "%s", child->failure.data);
        return;
    }
    if (!peer->is_answered)
        answer(peer, "{\"ok\":true,\"pid\":%d,\"terminal\":%s}", (int)child->pid, child->has_terminal ? "true" : "false");
    peer->is_answered = true;
    if (child->state == ENDED)
        add_exit(peer, child);
}

static bool is_full(const struct peer *peer)
{
    return peer->state == LISTENING && peer->unsent.size >= WINDOW;
}

void note_demands(void)
{
    for (struct child *child = children; child != NULL; child = child->next) {
        child->is_blocked = false;
        child->is_fed = child->input_ends;
    }
    for (const struct peer *peer = peers; peer != NULL; peer = peer->next) {
        if (peer->child == NULL)
            continue;
        peer->child->is_blocked = peer->child->is_blocked || is_full(peer);
        peer->child->is_fed = peer->child->is_fed || peer->turn > 0;
    }
}

ssize_t copy_output(struct child *child, int index)
{
    static char data[LARGEST_OUTPUT];
    ssize_t count = read_child(&child->outputs[index], data);
    bool skips_full = child->state == DRAINING && is_late(child);
    for (struct peer *peer = peers; peer != NULL && count > 0; peer = peer->next) {
        /* The other output may have filled the space since `poll`: one chunk more is accepted. */
        if (peer->state != LISTENING || peer->child != child || !peer->is_answered || (skips_full && is_full(peer)))
            continue;
        add_output(peer, STDOUT_FRAME + index, data, (size_t)count);
        flush_peer(peer);
    }
    return count;
}

void drain_child(struct child *child)
{
    for (int index = 0; index < 2; index++) {
        struct child_output *output = &child->outputs[index];
        while (output->is_left) {
            note_demands();
            if (child->is_blocked && !is_late(child))
                return;
            ssize_t count = copy_output(child, index);
            note_rest(child, output, count);
            if (count < 0)
                break;
        }
    }
    if (!child->outputs[0].is_left && !child->outputs[1].is_left)
        child->state = ENDED;
}

/* Input */

static void refuse_input(struct peer *peer)
{
    const struct child *child = peer->child;
    int pid = (int)child->pid;
    /* A process closes its input before it ends. */
    reap_children();
    peer->child = NULL;
    peer->turn = 0;
    if (!is_alive(child))
        refuse_peer(peer, "not_found", "process %d has ended", pid);
    else if (child->has_terminal != peer->is_for_terminal)
        refuse_peer(peer, "failed_precondition", "process %d has %s", pid,
                    child->has_terminal ? "a terminal and no separate standard input" : "no terminal");
    else if (!child->has_terminal && !child->has_input)
        refuse_peer(peer, "failed_precondition", "process %d was started without a standard input", pid);
    else
        refuse_peer(peer, "failed_precondition", "the standard input of process %d is closed", pid);
}

bool can_take_input(const struct peer *peer)
{
    const struct child *child = peer->child;
    return is_alive(child) && child->has_terminal == peer->is_for_terminal && (child->state == STARTING || child->input >= 0) &&
           (peer->turn > 0 || !child->input_ends);
}

bool queue_input(struct peer *peer)
{
    if (peer->turn > 0 || peer->received.size < FRAME_HEAD)
        return true;
    size_t size = get_u32(peer->received.data);
    if (size > LARGEST_INPUT)
        return false;
    if (peer->received.size >= FRAME_HEAD + size) {
        peer->turn = ++turns;
        peer->written = 0;
    }
    return true;
}

/* Returns the peer whose input is next for this process, or NULL. */
static struct peer *next_input(const struct child *child)
{
    struct peer *found = NULL;
    for (struct peer *peer = peers; peer != NULL; peer = peer->next) {
        if (peer->state == FEEDING && peer->child == child && peer->turn > 0 && (found == NULL || peer->turn < found->turn))
            found = peer;
    }
    return found;
}

void write_input(struct child *child)
{
    for (struct peer *peer; child->input >= 0 && (peer = next_input(child)) != NULL;) {
        size_t size = get_u32(peer->received.data);
        if (peer->written < size) {
            ssize_t count = write(child->input, peer->received.data + FRAME_HEAD + peer->written, size - peer->written);
            if (count < 0 && errno == EAGAIN)
                return;
            if (count < 0) {
                /* The process has closed its input. */
                close_input_of(child);
                return;
            }
            peer->written += (size_t)count;
        }
        if (peer->written < size)
            continue;
        buffer_take(&peer->received, FRAME_HEAD + size);
        peer->turn = 0;
        answer(peer, "{\"ok\":true}");
        queue_input(peer);
    }
    if (child->input_ends)
        close_input_of(child);
}

/* The end of peers */

bool is_in_use(const struct child *child)
{
    for (const struct peer *peer = peers; peer != NULL; peer = peer->next) {
        if (peer->child == child)
            return true;
    }
    return false;
}

void update_peers(void)
{
    for (struct peer **place = &peers; *place != NULL;) {
        struct peer *peer = *place;
        if (peer->state == LISTENING)
            update_listener(peer);
        if (peer->state == FEEDING && !can_take_input(peer))
            refuse_input(peer);
        if (peer->state != GONE)
            flush_peer(peer);
        if (peer->state != GONE && !has_passed(peer->deadline)) {
            place = &peer->next;
            continue;
        }
        *place = peer->next;
        close(peer->connection);
        buffer_free(&peer->received);
        buffer_free(&peer->unsent);
        free(peer);
    }
}
