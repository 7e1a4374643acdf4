/* Builds the root directory of a sandbox while the host's is still visible. */
#ifndef ROOT_H
#define ROOT_H

#include <stdbool.h>

#include "json.h"

/*
 * Builds at `root` what `plan` says (`rookery_zygote/root.py`). `own_proc`: with a /proc of this pid
 * namespace. On failure returns false; errno is the reason, and `what` the path.
 */
bool build_root(const struct json *plan, const char *root, bool own_proc, const char **what);
/*
 * Enters the built root with all processes of this mount namespace. Afterwards the host's files are reachable
 * only through descriptors.
 */
bool enter_root(const char *root);

#endif
