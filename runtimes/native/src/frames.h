/* Frames of a length (32 bits, the highest byte first) and as many bytes, on stream sockets; most are JSON. */
#ifndef FRAMES_H
#define FRAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "buffer.h"
#include "json.h"

enum {
    /* A start request with its environment. */
    LARGEST_FRAME = 16 * 1024 * 1024,
    FRAME_HEAD = 4,
};

/* The JSON object of the next frame; false when there is none. It lives in `held`. */
bool read_message(int connection, size_t largest, struct buffer *held, struct json *message);
/* False when the other side has gone. */
bool send_all(int connection, const void *data, size_t size);
void add_frame(struct buffer *target, const void *payload, size_t size);
bool send_frame(int connection, const void *payload, size_t size);
bool send_format(int connection, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Tells that what was asked for is not done: a code of `src/core/error.ts` and a sentence. */
void refuse(int connection, const char *code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* How long one read or write may take; 0 is without end. */
void set_timeout(int connection, int seconds);
unsigned long get_u32(const void *bytes);
void put_u32(void *bytes, unsigned long value);

#endif
