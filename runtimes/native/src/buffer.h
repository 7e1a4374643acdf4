/* Bytes that grow at their end and are taken from their beginning. */
#ifndef BUFFER_H
#define BUFFER_H

#include <stdarg.h>
#include <stddef.h>

struct buffer {
    char *data;
    size_t size;
    /* What was taken, and is still there before `data`. */
    size_t taken;
    size_t capacity;
};

/* Called when there is no memory for more; must not return. Ends the process unless somebody has something to say first. */
extern void (*memory_is_over)(void);

/* As malloc and realloc, and never NULL. */
void *allocate(size_t size);
void *reallocate(void *old, size_t size);
/* A copy of `size` bytes of a text, with a NUL behind them. Never NULL. */
char *copy_text(const char *text, size_t size);

/* Room for `size` more bytes; `size` grows only with what is added. */
char *buffer_room(struct buffer *buffer, size_t size);
void buffer_add(struct buffer *buffer, const void *data, size_t size);
/* A NUL stands behind what is written, and is not counted. */
void buffer_format(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_format_list(struct buffer *buffer, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));
void buffer_take(struct buffer *buffer, size_t size);
void buffer_free(struct buffer *buffer);

#endif
