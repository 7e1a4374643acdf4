/* What a mount takes away from what is mounted. */
#ifndef RESTRICT_H
#define RESTRICT_H

#include <stdbool.h>

/* Makes the mount at `target` and all below it nosuid, nodev and, when asked, read-only. False when it fails: errno says why. */
bool restrict_mount(const char *target, bool is_readonly);

#endif
