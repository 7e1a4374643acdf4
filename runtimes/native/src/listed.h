/* The accounts in /etc/passwd and /etc/group of a container, which code inside may have written. */
#ifndef LISTED_H
#define LISTED_H

#include "account.h"

/* Finds an account by its name. `root` always exists. Returns false if there is no other of this name. */
bool find_listed_account(const char *name, struct account *found);
/* Writes the groups of an account, its own first. Returns their count. */
size_t find_listed_groups(const struct account *account, gid_t *groups, size_t most);
/*
 * Adds `root` and `user` to the lists if they are missing, and makes their homes. `user` gets the first id
 * from 1000 on that no account and no group has. Returns false with errno.
 */
bool furnish_accounts(void);

#endif
