/* Why the ways to files do not do what they are asked (`files.c`, `directories.c`). */
#ifndef REFUSALS_H
#define REFUSALS_H

/* A path for a sentence. */
const char *shown(const char *path);
/* The sentence of why a path cannot be `doing` (read, written, listed, made), and the code of `src/core/error.ts`. */
const char *refusal_of(int number, const char *path, const char *doing, const char **code);
/*
 * From here on a process without memory refuses with this sentence, and ends. It is written before it is needed: then there is no memory
 * for it.
 */
void refuse_when_without_memory(int connection, const char *sentence);
/* Says it. */
_Noreturn void refuse_error(int connection, int number, const char *path, const char *doing);

#endif
