/* The files of a sandbox with accounts, which belong to them. */
#ifndef FURNISH_H
#define FURNISH_H

#include <stdbool.h>

#include "account.h"

/*
 * Replaces /etc below `root` by a private copy with the accounts. Comes before mounts below /etc. `ids` are
 * those of the accounts, or NULL if both are the one user of the sandbox; `one` is its uid then. `size` is
 * the mount option that bounds the copy. False with errno.
 */
bool furnish_etc(const struct json *plan, const char *root, const struct account_ids *ids, uid_t one, const char *size);
/*
 * Makes the homes and the files below /run/e2b, and gives everything in the sandbox's own memory to `root`
 * and `user`. Comes after all mounts. False with errno.
 */
bool furnish_homes(const char *root, const struct account_ids *ids, const struct json *env);

#endif
