/* The end of a start that cannot be done: this process undoes it, answers and ends. */
#ifndef FAILURE_H
#define FAILURE_H

#define AS_ASKED "failed_precondition"

/* With a code of `src/core/error.ts` and a sentence. */
_Noreturn void fail_start(const char *code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For what nobody foresaw: what did not work, and errno says why. */
_Noreturn void fail_with_errno(const char *what);

#endif
