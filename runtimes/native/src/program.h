/* Turns a child into a program: it keeps only the descriptors that it is given. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "json.h"

/* Restores the default signals. */
void reset_signals(void);
/*
 * Keeps only this descriptor and `other`, unless that is -1; 0, 1 and 2 become /dev/null, because a path can
 * be /proc/self/fd/1. False with errno.
 */
bool keep_only(int connection, int other);
/* Starts a session with default signals, and keeps only these descriptors, as 0, 1 and 2. */
void detach(const int standard[3]);
/* Keeps `report` too, until a program is executed. Returns its new number. */
int detach_with(const int standard[3], int report);
void enter_directory(const char *path);

enum { ENVIRONMENTS = 3 };

struct program {
    const struct json *argv;
    /* Merges lists of names and values, which may be NULL. The last has precedence. */
    const struct json *env[ENVIRONMENTS];
    /* Returns `TERM=…` if neither list has it, or NULL. */
    const char *term;
    const char *working_dir;
    /* The requested directory, if any. A relative one is relative to `working_dir`. */
    const char *asked_dir;
    /* Adds PATH under a second name, from which a login shell of an image restores it (`container.c`). */
    bool keeps_path;
    /* 0, or a socket that gets the sentence of a failure instead of standard error. */
    int report;
};

/* Ends a child that cannot become the program: exit code 127, and a line on standard error. */
_Noreturn void fail_to_run(const char *reason);
/* Becomes the program, or ends with 127 and the reason. */
_Noreturn void run_program(const struct program *program);

#endif
