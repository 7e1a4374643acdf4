/*
 * The bounded, rotating log of one sandbox. Each line is stored as `<13 digits of milliseconds> <line>`. When a file is full in the middle
 * of a line, the next file begins with `<milliseconds>+`: what follows continues the line.
 */
#ifndef LOG_H
#define LOG_H

#include <stdbool.h>
#include <stddef.h>

struct log {
    /* Of its files: the path is not in reach from inside. */
    int directory;
    /* How large one file may be, and how many there are. */
    size_t largest;
    int files;
    /* -1: made with the first output. Most sandboxes never have any, and a file costs a create and a delete. */
    int file;
    size_t size;
    bool is_in_line;
};

/* Stores output as it came. A full disk loses it: the sandbox goes on. */
void log_write(struct log *log, const char *data, size_t size);

#endif
