/* Ends a start that fails: undoes it, answers the caller and ends this process. */
#ifndef FAILURE_H
#define FAILURE_H

#include <stdbool.h>

#define AS_ASKED "failed_precondition"

/*
 * Registers the function that undoes the start, and the variable that holds the caller's connection. Called
 * before anything can fail.
 */
void fail_by(void (*undo)(void), const int *connection);
/* Fails with a code of `src/core/error.ts` and a sentence. */
_Noreturn void fail_start(const char *code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fails because of an unexpected error: `what` failed, and errno says why. */
_Noreturn void fail_with_errno(const char *what);
/* Calls `fail_with_errno` if `is_done` is false. */
void must(bool is_done, const char *what);

#endif
