#include "buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAST_CAPACITY = 256, NO_MEMORY = 71 };

static void end(void)
{
    _exit(NO_MEMORY);
}

void (*on_out_of_memory)(void) = end;

void *allocate(size_t size)
{
    return reallocate(NULL, size);
}

void *reallocate(void *old, size_t size)
{
    void *found = realloc(old, size ? size : 1);
    if (found == NULL) {
        on_out_of_memory();
        _exit(NO_MEMORY);
    }
    return found;
}

char *copy_text(const char *text, size_t size)
{
    char *made = memcpy(allocate(size + 1), text, size);
    made[size] = '\0';
    return made;
}

char *buffer_room(struct buffer *buffer, size_t size)
{
    char *start = buffer->data - buffer->taken;
    size_t needed = buffer->taken + buffer->size + size;
    if (needed <= buffer->capacity)
        return buffer->data + buffer->size;
    if (buffer->taken > 0) {
        memmove(start, buffer->data, buffer->size);
        needed -= buffer->taken;
        buffer->data = start;
        buffer->taken = 0;
    }
    if (needed > buffer->capacity) {
        size_t capacity = buffer->capacity ? buffer->capacity : LEAST_CAPACITY;
        while (capacity < needed)
            capacity *= 2;
        buffer->data = reallocate(buffer->capacity ? buffer->data : NULL, capacity);
        buffer->capacity = capacity;
    }
    return buffer->data + buffer->size;
}

void buffer_add(struct buffer *buffer, const void *data, size_t size)
{
    if (size == 0)
        return;
    memcpy(buffer_room(buffer, size), data, size);
    buffer->size += size;
}

void buffer_format(struct buffer *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    buffer_format_list(buffer, format, arguments);
    va_end(arguments);
}

void buffer_format_list(struct buffer *buffer, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    size_t size = (size_t)vsnprintf(NULL, 0, format, arguments);
    vsnprintf(buffer_room(buffer, size + 1), size + 1, format, again);
    va_end(again);
    buffer->size += size;
}

void buffer_take(struct buffer *buffer, size_t size)
{
    buffer->size -= size;
    buffer->data += size;
    buffer->taken += size;
    if (buffer->size == 0 && buffer->capacity) {
        buffer->data -= buffer->taken;
        buffer->taken = 0;
    }
}

void buffer_free(struct buffer *buffer)
{
    if (buffer->capacity)
        free(buffer->data - buffer->taken);
    memset(buffer, 0, sizeof *buffer);
}
