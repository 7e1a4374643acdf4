/* A byte queue: appends at the end, removes at the beginning. */
#ifndef BUFFER_H
#define BUFFER_H

#include <stdarg.h>
#include <stddef.h>

struct buffer {
    char *data;
    size_t size;
    /* Bytes before `data` that were removed and not yet freed. */
    size_t taken;
    size_t capacity;
};

/*
 * Called when memory is exhausted; must not return. The default ends the process. Others report the failure
 * first.
 */
extern void (*on_out_of_memory)(void);

/* Like malloc and realloc, but never return NULL. */
void *allocate(size_t size);
void *reallocate(void *old, size_t size);
/* Copies `size` bytes of a text and adds a NUL. Never NULL. */
char *copy_text(const char *text, size_t size);

/* Reserves space for `size` more bytes. The size of the buffer does not change. */
char *buffer_room(struct buffer *buffer, size_t size);
void buffer_add(struct buffer *buffer, const void *data, size_t size);
/* Appends formatted text. A NUL follows the text and is not counted. */
void buffer_format(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_format_list(struct buffer *buffer, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));
void buffer_take(struct buffer *buffer, size_t size);
void buffer_free(struct buffer *buffer);

#endif
