#include "frames.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { MOST_READ = 1 << 20 };

unsigned long get_u32(const void *bytes)
{
    const unsigned char *at = bytes;
    return (unsigned long)at[0] << 24 | (unsigned long)at[1] << 16 | (unsigned long)at[2] << 8 | at[3];
}

void put_u32(void *bytes, unsigned long value)
{
    unsigned char *at = bytes;
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

static bool read_exactly(int connection, struct buffer *held, size_t size)
{
    while (size > 0) {
        size_t most = size < MOST_READ ? size : MOST_READ;
        ssize_t count = recv(connection, buffer_room(held, most + 1), most, 0);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        held->size += (size_t)count;
        size -= (size_t)count;
    }
    return true;
}

bool read_frame(int connection, size_t largest, struct buffer *held)
{
    buffer_free(held);
    if (!read_exactly(connection, held, FRAME_HEAD))
        return false;
    size_t size = get_u32(held->data);
    if (size > largest)
        return false;
    buffer_take(held, FRAME_HEAD);
    return read_exactly(connection, held, size);
}

bool read_message(int connection, size_t largest, struct buffer *held, struct json *message)
{
    if (!read_frame(connection, largest, held))
        return false;
    buffer_room(held, 1);
    return json_read(message, held->data, held->size) && message->kind == JSON_OBJECT;
}

bool send_all(int connection, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        ssize_t count = send(connection, at, size, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return false;
        at += count;
        size -= (size_t)count;
    }
    return true;
}

void add_frame(struct buffer *target, const void *payload, size_t size)
{
    char head[FRAME_HEAD];
    put_u32(head, size);
    buffer_add(target, head, sizeof head);
    buffer_add(target, payload, size);
}

bool send_frame(int connection, const void *payload, size_t size)
{
    struct buffer frame = {0};
    add_frame(&frame, payload, size);
    bool is_sent = send_all(connection, frame.data, frame.size);
    buffer_free(&frame);
    return is_sent;
}

bool send_format(int connection, const char *format, ...)
{
    struct buffer text = {0};
    va_list arguments;
    va_start(arguments, format);
    buffer_format_list(&text, format, arguments);
    va_end(arguments);
    bool is_sent = send_frame(connection, text.data, text.size);
    buffer_free(&text);
    return is_sent;
}

void refuse(int connection, const char *code, const char *format, ...)
{
    struct buffer sentence = {0}, message = {0};
    va_list arguments;
    va_start(arguments, format);
    buffer_format_list(&sentence, format, arguments);
    va_end(arguments);
    buffer_format(&message, "{\"ok\":false,\"code\":\"%s\",\"message\":", code);
    json_write_bytes(&message, sentence.data);
    buffer_add(&message, "}", 1);
    send_frame(connection, message.data, message.size);
    buffer_free(&message);
    buffer_free(&sentence);
}

void set_timeout(int connection, int seconds)
{
    struct timeval time = {.tv_sec = seconds};
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}
