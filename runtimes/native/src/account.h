/*
 * The accounts of a sandbox: `root` and `user` of a sandbox with accounts of its own, those of /etc/passwd in
 * a container of an image, otherwise the one user that the sandbox runs as.
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include "sandbox.h"

struct account {
    /* The ids inside. */
    uid_t uid;
    gid_t gid;
    /* The values of USER and LOGNAME, of HOME, and the login shell. */
    const char *name, *home, *shell;
};

/* The ids of the accounts outside, in the namespace of init. */
struct account_ids {
    unsigned root, user;
};

/*
 * Finds an account by its name. The empty name is the sandbox's default account. False if there is none of
 * this name; callers refuse with `unauthenticated`.
 */
bool find_account(const struct sandbox *sandbox, const char *name, struct account *found);
/*
 * Gives this process, a child of init or of a process that keeps the rights of init, the ids, groups and
 * limits of an account. In a sandbox with accounts of its own `root` keeps the capabilities CHOWN,
 * DAC_OVERRIDE, FOWNER, KILL, SETGID and SETUID over what belongs to the sandbox; any other account has none.
 * Needs and closes `sandbox->accounts_namespace`, unless the accounts are listed.
 * False with errno on failure: the process must end then.
 */
bool become_account(const struct sandbox *sandbox, const struct account *account);

/* The ids of the accounts of the sandbox whose limits this uid owns (`making.c`). */
struct account_ids account_ids_of(uid_t limits_owner);
/*
 * Makes the user namespace of the accounts, inside the one that this process has just entered with all
 * capabilities. `proc` is a directory of /proc where this process is visible. Returns its descriptor, or -1
 * with errno.
 */
int make_accounts_namespace(int proc, struct account_ids ids);

#endif
