#include "idle.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "frames.h"
#include "json.h"

/* Types of frames, and codes of errors, of `src/runtime/protocol.ts`. */
enum frame { HELLO = 1, HELLO_OK, INIT, INIT_OK, CALL, ERROR = 8, CANCEL, CREDIT, PING, PONG, STOP, STOPPED, SAVED = 16 };
enum {
    VERSION = 1,
    /* Type and call id, which follow the length. */
    HEAD = 5,
    LARGEST = 7 * 1024 * 1024,
};

static const char REFUSED[] = "{\"code\":4000,\"message\":\"the first frame must greet with the secret of this instance\"}";
static const char NO_CODE[] = "{\"code\":4201,\"message\":\"empty user call code\"}";

static bool is_initialized;

static bool answer(const struct idle_peer *peer, enum frame type, unsigned long call, const char *payload)
{
    struct buffer frame = {0};
    char head[FRAME_HEAD + HEAD];
    put_u32(head, HEAD + strlen(payload));
    head[FRAME_HEAD] = (char)type;
    put_u32(head + FRAME_HEAD + 1, call);
    buffer_add(&frame, head, sizeof head);
    buffer_add(&frame, payload, strlen(payload));
    bool is_sent = send_all(peer->connection, frame.data, frame.size);
    buffer_free(&frame);
    return is_sent;
}

static bool greet(struct idle_peer *peer, struct buffer *frame, const char *secret)
{
    struct json hello = {0};
    char text[160];
    buffer_take(frame, HEAD);
    buffer_room(frame, 1);
    peer->is_greeted = json_read(&hello, frame->data, frame->size) && json_number(&hello, "version") == VERSION &&
                       strcmp(json_text(&hello, "secret"), secret) == 0;
    json_free(&hello);
    if (!peer->is_greeted) {
        answer(peer, ERROR, 0, REFUSED);
        return false;
    }
    snprintf(text, sizeof text, "{\"version\":%d,\"runtime\":\"none\",\"sdk\":\"rookery-init/1\",\"state\":\"%s\",\"stopsOverData\":true}", VERSION,
             is_initialized ? "ready" : "new");
    return answer(peer, HELLO_OK, 0, text);
}

bool serve_idle(struct idle_peer *peer, const char *secret)
{
    static struct buffer frame;
    if (!read_frame(peer->connection, LARGEST, &frame) || frame.size < HEAD)
        return false;
    enum frame type = (unsigned char)frame.data[0];
    unsigned long call = get_u32(frame.data + 1);
    if (!peer->is_greeted)
        return type == HELLO ? greet(peer, &frame, secret) : (answer(peer, ERROR, 0, REFUSED), false);
    switch (type) {
    case INIT:
        is_initialized = true;
        return answer(peer, INIT_OK, 0, "{\"loadMicros\":0,\"initMicros\":0}");
    case CALL:
        return answer(peer, ERROR, call, NO_CODE);
    case PING:
        return answer(peer, PONG, 0, "{\"running\":0,\"queued\":0}");
    case STOP:
        answer(peer, STOPPED, 0, "{}");
        _exit(0);
    case CANCEL:
    case CREDIT:
    case SAVED:
        return true;
    default:
        return false;
    }
}
