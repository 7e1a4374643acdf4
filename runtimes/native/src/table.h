/*
 * The process table of a sandbox: a child of init that starts processes, and keeps them when the connection
 * or the service ends. It serves one request per connection. Init passes the connections.
 */
#ifndef TABLE_H
#define TABLE_H

#include <stdbool.h>
#include <sys/types.h>

#include "sandbox.h"

/*
 * Passes an accepted connection to the table, which this starts if there is none. Refuses the connection on
 * failure. The caller closes its descriptor afterwards.
 */
void pass_to_table(int connection, const struct sandbox *sandbox);
/* Notes that a child of init has ended. */
void note_end_of_table(pid_t pid);
/* Serves the connections that arrive over `control`, until that closes. */
_Noreturn void run_table(int control, const struct sandbox *sandbox);

#endif
