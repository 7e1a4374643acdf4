/*
 * The bounded, rotating log of one sandbox. Each line is stored as `<13 digits of milliseconds> <line>`. If a
 * file is full in the middle of a line, the next file begins with `<milliseconds>+` and the rest of that
 * line.
 */
#ifndef LOG_H
#define LOG_H

#include <stdbool.h>
#include <stddef.h>

struct log {
    /* The directory of the files; its path is not reachable from inside. */
    int directory;
    /* The largest size of one file, and the count of files. */
    size_t largest;
    int files;
    /* -1 until the first output. Most sandboxes have none, and a file slows create and delete. */
    int file;
    size_t size;
    bool is_in_line;
};

/* Stores output. Discards it if the disk is full, and the sandbox continues. */
void log_write(struct log *log, const char *data, size_t size);

#endif
