/* The limits of a sandbox's control groups. */
#ifndef GROUPS_H
#define GROUPS_H

#include "buffer.h"
#include "json.h"

/*
 * Opens the files of the groups called `name` while they can be reached, and adds them to an object that is written: `limits`, which
 * `write_limits` takes, in the order in which they must be written, and `oomKills`, which counts kills for want of memory (-1: nothing does).
 */
void tell_limit_files(struct buffer *told, const struct json *groups, const char *name);

/* Writes them to the files of `limits` (`file`, a descriptor, and `name`) and closes those. Calls `refused(file, value, reason)` for what the kernel refuses. */
void write_limits(const struct json *limits, const struct json *request, void (*refused)(const char *, const char *, const char *));

#endif
