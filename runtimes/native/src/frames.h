/* Frames on stream sockets: a length (32 bits, big-endian), then as many bytes, mostly JSON. */
#ifndef FRAMES_H
#define FRAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "buffer.h"
#include "json.h"

enum {
    /* Enough for a start request with its environment. */
    LARGEST_FRAME = 16 * 1024 * 1024,
    FRAME_HEAD = 4,
};

/* Reads the payload of the next frame. Returns false if there is none, or it is larger. */
bool read_frame(int connection, size_t largest, struct buffer *held);
/*
 * Reads the JSON object of the next frame into `message`, whose texts are in `held`. Returns false if there
 * is none.
 */
bool read_message(int connection, size_t largest, struct buffer *held, struct json *message);
/* Returns false if the peer has disconnected. */
bool send_all(int connection, const void *data, size_t size);
void add_frame(struct buffer *target, const void *payload, size_t size);
bool send_frame(int connection, const void *payload, size_t size);
bool send_format(int connection, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Refuses a request, with a code of `src/core/error.ts` and a sentence. */
void refuse(int connection, const char *code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Limits the time of one read or write. 0: no limit. */
void set_timeout(int connection, int seconds);
unsigned long get_u32(const void *bytes);
void put_u32(void *bytes, unsigned long value);

#endif
