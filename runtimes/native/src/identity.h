/* The user and groups of the user's code. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include <stddef.h>
#include <sys/types.h>

struct identity {
    const char *name;
    uid_t uid;
    gid_t gid;
    gid_t *groups;
    size_t group_count;
};

/*
 * Finds the identity called `user` on this host: a name or a number, with or without `:group`; empty means
 * root. Ends the start if there is none. Same rules as `rookery_zygote/identity.py`.
 */
void find_identity(struct identity *found, const char *user);

/*
 * Finds the identity of root in advance. The next `find_identity` then needs no search, unless the host's
 * users have changed.
 */
void find_usual_identity(void);

#endif
