/* Who the user's code runs as. */
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
 * The identity called `user`, as this host knows it: a name or a number, with `:group` or without; empty is root. Ends the start when there is none.
 * As `rookery_zygote/identity.py`.
 */
void find_identity(struct identity *found, const char *user);

/* Finds that of root before anybody asks for it: the next `find_identity` has it without a search, unless the host's users have changed meanwhile. */
void find_usual_identity(void);

#endif
