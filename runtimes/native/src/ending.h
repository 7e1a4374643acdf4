/* How a sandbox has ended, as its files and everybody who waits are told. */
#ifndef ENDING_H
#define ENDING_H

#include "buffer.h"
#include "sandbox.h"

/* Writes it as JSON. `status`: of the user's process; `cause`: why it was asked to end, or NULL. */
void write_ending(struct buffer *target, const struct sandbox *sandbox, int status, const char *cause);

#endif
