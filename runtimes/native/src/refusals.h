/* The refusals of file requests (`files.c`, `directories.c`). */
#ifndef REFUSALS_H
#define REFUSALS_H

/* Returns a path as a sentence shows it. */
const char *shown(const char *path);
/*
 * Returns the sentence that says why a path cannot be `doing` (read, written, listed, made), and its code of
 * `src/core/error.ts`.
 */
const char *refusal_of(int number, const char *path, const char *doing, const char **code);
/*
 * From now on, exhausted memory refuses the request with this sentence and ends the process. The answer is
 * prepared in advance, because it needs memory.
 */
void refuse_when_without_memory(int connection, const char *sentence);
/* Refuses with that sentence, and ends the process. */
_Noreturn void refuse_error(int connection, int number, const char *path, const char *doing);

#endif
