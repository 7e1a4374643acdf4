/* Why a system call failed, in the words of all other components. */
#ifndef REASON_H
#define REASON_H

const char *reason_of(int number);
/* Returns the code of `src/core/error.ts`: `unavailable` if a temporary lack of resources is the reason. */
const char *code_of(int number);

#endif
