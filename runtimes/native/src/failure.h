/* The end of a start that cannot be done: this process undoes it, answers and ends. */
#ifndef FAILURE_H
#define FAILURE_H

#include <stdbool.h>

#define AS_ASKED "failed_precondition"

/* Before anything of a start can fail: what undoes it, and where the connection stands that waits for the answer. */
void fail_by(void (*undo)(void), const int *connection);
/* With a code of `src/core/error.ts` and a sentence. */
_Noreturn void fail_start(const char *code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For what nobody foresaw: what did not work, and errno says why. */
_Noreturn void fail_with_errno(const char *what);
/* The same of what did not succeed. */
void must(bool is_done, const char *what);

#endif
