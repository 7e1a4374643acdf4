/* The root directory of a sandbox, built while the host's is still in sight. */
#ifndef ROOT_H
#define ROOT_H

#include <stdbool.h>

#include "json.h"

/*
 * Builds at `root` what `plan` says (`rookery_zygote/root.py`). `own_proc`: with a /proc of this pid namespace. False when it fails: errno says
 * why, and `what` is the path.
 */
bool build_root(const struct json *plan, const char *root, bool own_proc, const char **what);
/* Makes the built root that of every process of this mount namespace: from here on the host's files are out of reach but by descriptors. */
bool enter_root(const char *root);

#endif
