/* Why a system call failed, in the words that every other part of the product has for it. */
#ifndef REASON_H
#define REASON_H

const char *reason_of(int number);
/* Its code of `src/core/error.ts`: `unavailable` for what the machine lacks now and may have again. */
const char *code_of(int number);

#endif
