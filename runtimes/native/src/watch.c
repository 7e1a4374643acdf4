/*
 * Reports changes below a directory (`src/sandbox/files.ts`) over one connection. The answer says that the
 * watch has begun; frames with lists of events follow. The caller sends `{"op":"flush","id":n}`, which is
 * answered when all changes before it are reported. The end of the connection ends the watch.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "access.h"
#include "changes.h"
#include "frames.h"
#include "moment.h"
#include "reason.h"
#include "refusals.h"
#include "watched.h"

enum {
    CHUNK = 65536,
    LARGEST_REQUEST = 1024,
    /*
     * The time in which changes are collected before they are sent. Repetitions side by side become one,
     * which the kernel does too while nothing reads them.
     */
    COLLECT_MS = 10,
    /* The most bytes that wait for a caller who reads slowly; more stay in the kernel's queue. */
    MOST_UNSENT = 1048576,
    /* The time in which the caller must read a refusal. */
    HEARD_SECONDS = 10,
};

struct watch {
    int connection;
    struct watched watched;
    struct buffer received, unsent;
    /* When the collected changes must be sent. */
    long long due;
};

static void flush(struct watch *watch)
{
    while (watch->unsent.size > 0) {
        ssize_t count = send(watch->connection, watch->unsent.data, watch->unsent.size, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN)
            return;
        if (count < 0)
            _exit(0);
        buffer_take(&watch->unsent, (size_t)count);
    }
}

static void publish(struct watch *watch)
{
    struct buffer message = {0};
    while (watch->watched.changes.count > 0) {
        buffer_format(&message, "{\"ok\":true,\"events\":");
        changes_write(&watch->watched.changes, &message);
        buffer_add(&message, "}", 1);
        add_frame(&watch->unsent, message.data, message.size);
        buffer_free(&message);
    }
    watch->due = NEVER;
    flush(watch);
}

/* Reports why the watch ends, after what it has found until then. */
_Noreturn static void fail(struct watch *watch, const char *code, const char *reason)
{
    publish(watch);
    fcntl(watch->connection, F_SETFL, 0);
    set_timeout(watch->connection, HEARD_SECONDS);
    if (send_all(watch->connection, watch->unsent.data, watch->unsent.size))
        refuse(watch->connection, code, "%s", reason);
    _exit(0);
}

static void check(struct watch *watch)
{
    if (watch->watched.has_lost)
        fail(watch, "resource_exhausted", "changes were lost, because there were too many to report");
    if (watch->watched.error != 0)
        fail(watch, "resource_exhausted", watched_reason(&watch->watched));
}

/* Reads some changes. Returns the count of their bytes; 0 if there are none. */
static size_t read_changes(struct watch *watch)
{
    static char chunk[CHUNK] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t count = read(watch->watched.queue, chunk, sizeof chunk);
    if (count <= 0) {
        watched_is_idle(&watch->watched);
        return 0;
    }
    for (const char *at = chunk; at < chunk + count;) {
        const struct inotify_event *event = (const struct inotify_event *)at;
        watched_handle(&watch->watched, event);
        check(watch);
        at += sizeof *event + event->len;
    }
    if (watch->due == NEVER && watch->watched.changes.count > 0)
        watch->due = after_ms(COLLECT_MS);
    return (size_t)count;
}

/* Returns the bytes of changes that wait in the queue. */
static int waiting(const struct watch *watch)
{
    int count = 0;
    ioctl(watch->watched.queue, FIONREAD, &count);
    return count;
}

/* Reports all changes up to now. */
static void catch_up(struct watch *watch)
{
    /* Changes that are made meanwhile do not count: there may be no end to them. */
    int left = waiting(watch);
    for (size_t count; left > 0 && (count = read_changes(watch)) > 0;)
        left -= (int)count;
    publish(watch);
}

static void serve_request(struct watch *watch, const char *payload, size_t size)
{
    struct json request;
    struct buffer answer = {0};
    char *text = copy_text(payload, size);
    if (json_read(&request, text, size) && request.kind == JSON_OBJECT && strcmp(json_text(&request, "op"), "flush") == 0) {
        catch_up(watch);
        buffer_format(&answer, "{\"ok\":true,\"flushed\":%.0f}", json_number(&request, "id"));
        add_frame(&watch->unsent, answer.data, answer.size);
        flush(watch);
    }
    json_free(&request);
    buffer_free(&answer);
    free(text);
}

/* Returns false if the caller has disconnected or sent an invalid frame. */
static bool talk(struct watch *watch)
{
    ssize_t count = recv(watch->connection, buffer_room(&watch->received, LARGEST_REQUEST), LARGEST_REQUEST, 0);
    if (count <= 0)
        return count < 0 && errno == EAGAIN;
    watch->received.size += (size_t)count;
    while (watch->received.size >= FRAME_HEAD) {
        size_t size = get_u32(watch->received.data);
        if (size > LARGEST_REQUEST)
            return false;
        if (watch->received.size < FRAME_HEAD + size)
            return true;
        serve_request(watch, watch->received.data + FRAME_HEAD, size);
        buffer_take(&watch->received, FRAME_HEAD + size);
    }
    return true;
}

static void start(struct watch *watch, const char *path, const struct json *request)
{
    int queue = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (queue < 0) {
        refuse(watch->connection, "resource_exhausted", "no more directories can be watched: %s", reason_of(errno));
        _exit(0);
    }
    watch->watched.queue = queue;
    watch->watched.is_recursive = json_is_true(request, "recursive");
    watch->watched.changes.has_facts = json_is_true(request, "facts");
    if (watched_begin(&watch->watched, path))
        return;
    if (errno == ENOTDIR)
        refuse(watch->connection, "invalid_request", "%s is not a directory", shown(path));
    else if (errno == ENOSPC || errno == ENOMEM)
        refuse(watch->connection, "resource_exhausted", "%s", watched_reason(&watch->watched));
    else
        refuse_error(watch->connection, errno, path, "watched");
    _exit(0);
}

_Noreturn void serve_watch(int connection, const struct json *request, const struct owner *owner)
{
    struct watch watch = {.connection = connection, .due = NEVER};
    start(&watch, locate(connection, request, "path", owner), request);
    set_timeout(connection, 0);
    fcntl(connection, F_SETFL, O_NONBLOCK);
    static const char good[] = "{\"ok\":true}";
    add_frame(&watch.unsent, good, sizeof good - 1);
    flush(&watch);
    for (;;) {
        bool may_read = watch.unsent.size < MOST_UNSENT;
        struct pollfd waits[] = {
            {connection, (short)(POLLIN | (watch.unsent.size > 0 ? POLLOUT : 0)), 0},
            {may_read ? watch.watched.queue : -1, POLLIN, 0},
        };
        poll(waits, 2, may_read ? remaining_ms(watch.due) : -1);
        if (waits[0].revents & POLLOUT)
            flush(&watch);
        if (waits[0].revents & ~POLLOUT && !talk(&watch))
            _exit(0);
        if (waits[1].revents && read_changes(&watch) > 0 && waiting(&watch) == 0)
            watched_is_idle(&watch.watched);
        if (may_read && (has_passed(watch.due) || changes_are_many(&watch.watched.changes)))
            publish(&watch);
    }
}
