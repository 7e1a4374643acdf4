/* The description of how a sandbox has ended, for its files and for waiting clients. */
#ifndef ENDING_H
#define ENDING_H

#include "buffer.h"
#include "sandbox.h"

/*
 * Writes the description as JSON. `status`: wait status of the user's process; `cause`: why its end was
 * requested, or NULL.
 */
void write_ending(struct buffer *target, const struct sandbox *sandbox, int status, const char *cause);

#endif
