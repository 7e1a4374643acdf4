/* How a child becomes a program: nothing of the process that forked it stays, but the descriptors that it is given. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "json.h"

/* Signals as a program expects them. */
void reset_signals(void);
/* Only this one and what is there as 0, 1 and 2, which lead nowhere from here on: a path can be /proc/self/fd/1. False with `errno`. */
bool keep_only(int connection);
/* A session of its own, ordinary signals, and no descriptors but these, as 0, 1 and 2. */
void detach(const int standard[3]);
void enter_directory(const char *path);

struct program {
    const struct json *argv;
    /* Names and values; those of the second count more. */
    const struct json *env[2];
    /* `TERM=…`, where neither has one; or NULL. */
    const char *term;
    const char *working_dir;
    /* Where somebody wants it to run, if anywhere; a relative one counts from `working_dir`. */
    const char *asked_dir;
};

/* Ends a child that cannot become the program: 127, and a line on standard error. */
_Noreturn void fail_to_run(const char *reason);
/* Becomes the program, or ends with 127 and a line that says why not. */
_Noreturn void run_program(const struct program *program);

#endif
