#include "log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "moment.h"

enum { LONGEST_REST = 65536, LONGEST_TIME = 24 };

static void store(struct log *log, const char *data, size_t size)
{
    log->size += size;
    if (log->file < 0)
        /* The disk is full: the next output tries again. */
        log->file = openat(log->directory, "log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    while (log->file >= 0 && size > 0) {
        ssize_t count = write(log->file, data, size);
        if (count <= 0)
            return;
        data += count;
        size -= (size_t)count;
    }
}

static void append(struct log *log, const char *data, size_t size, const char *now)
{
    struct buffer stored = {0};
    for (const char *end = data + size; data < end;) {
        const char *line_end = memchr(data, '\n', (size_t)(end - data));
        const char *next = line_end ? line_end + 1 : end;
        if (!log->is_in_line)
            buffer_format(&stored, "%s ", now);
        buffer_add(&stored, data, (size_t)(next - data));
        log->is_in_line = line_end == NULL;
        data = next;
    }
    store(log, stored.data, stored.size);
    buffer_free(&stored);
}

static void name_of(int index, char name[16])
{
    if (index == 0)
        strcpy(name, "log");
    else
        snprintf(name, 16, "log.%d", index);
}

static void rotate(struct log *log, const char *now)
{
    if (log->file >= 0)
        close(log->file);
    log->file = -1;
    for (int index = log->files - 1; index > 0; index--) {
        char older[16], newer[16];
        name_of(index, older);
        name_of(index - 1, newer);
        renameat(log->directory, newer, log->directory, older);
    }
    log->size = 0;
    if (log->is_in_line) {
        char mark[LONGEST_TIME + 1];
        store(log, mark, (size_t)snprintf(mark, sizeof mark, "%s+", now));
    }
}

void log_write(struct log *log, const char *data, size_t size)
{
    char now[LONGEST_TIME];
    snprintf(now, sizeof now, "%013lld", now_ms());
    for (;;) {
        size_t room = log->largest > log->size ? log->largest - log->size : 0;
        if (size <= room)
            break;
        /* The line that crosses the limit stays whole if it ends soon; otherwise it is split here. */
        size_t rest = size - room < LONGEST_REST ? size - room : LONGEST_REST;
        const char *end = memchr(data + room, '\n', rest);
        size_t cut = end ? (size_t)(end + 1 - data) : room;
        append(log, data, cut, now);
        data += cut;
        size -= cut;
        rotate(log, now);
    }
    append(log, data, size, now);
}
