/* Counts the accesses that children of init serve. */
#ifndef ACCESSES_H
#define ACCESSES_H

#include <sys/types.h>

#include "sandbox.h"

/*
 * Forks a child that serves an access of this name. Refuses the connection when there is no such access or
 * too many of it are open. The caller reaps ended children before, so that they free their slots.
 */
void start_access(int connection, const struct sandbox *sandbox, const char *name);
/* Frees the slot of a child that has ended. */
void note_end_of_access(pid_t pid);

#endif
