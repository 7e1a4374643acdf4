/* The limits of a sandbox's control groups. */
#ifndef GROUPS_H
#define GROUPS_H

#include "json.h"

/* Writes them to the files of `limits` (`file`, a descriptor, and `name`) and closes those. Calls `refused(file, value, reason)` for what the kernel refuses. */
void write_limits(const struct json *limits, const struct json *request, void (*refused)(const char *, const char *, const char *));

#endif
