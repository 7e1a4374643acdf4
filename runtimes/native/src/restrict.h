/* Restricts a mount. */
#ifndef RESTRICT_H
#define RESTRICT_H

#include <stdbool.h>

/*
 * Makes the mount at `target` and all mounts below it nosuid, nodev and, if requested, read-only. False with
 * errno.
 */
bool restrict_mount(const char *target, bool is_readonly);

#endif
