/* The limits of a sandbox's control groups. */
#ifndef GROUPS_H
#define GROUPS_H

#include "buffer.h"
#include "json.h"

/* The first uid that owns the limits of a sandbox. No distribution assigns it. */
enum { FIRST_OWNER = 0x70000000 };

/*
 * Opens the limit files of the groups called `name` while they are reachable, and adds two members to a JSON
 * object: `limits`, the files in the order of writing, for `write_limits`; and `oomKills`, the file that
 * counts kills for memory (-1: none).
 */
void add_limit_files(struct buffer *told, const struct json *groups, const char *name);

/*
 * Writes the limits to the files of `limits` (`file`, a descriptor, and `name`) and closes them. Calls
 * `refused(file, value, reason)` for each value that the kernel refuses.
 */
void write_limits(const struct json *limits, const struct json *request, void (*refused)(const char *, const char *, const char *));

#endif
