/* What a process has of the rights of init, and what it gives up to be one of the user. */
#ifndef RIGHTS_H
#define RIGHTS_H

#include <stdbool.h>

#include "sandbox.h"

/* What an init needs for its children: to switch to the user and to kill. No program that it executes inherits any of it. */
bool keep_rights_of_init(const struct sandbox *sandbox);
/* Gives up what no program that is executed later can get back; the rights of this process itself stay. */
bool give_up_privileges(const struct sandbox *sandbox, bool has_no_new_privs);
/* The namespace that the mounts needed maps root; any other user is one namespace further in. */
bool enter_user_namespace(uid_t uid, gid_t gid);
/* A namespace whose owner is that uid, which nobody else has: what the kernel counts by user it counts there. Of the host's rights nothing stays. */
bool enter_namespace_of(uid_t owner, int namespace);
/* The user's limits and ids, and no capability. */
bool become_user(const struct sandbox *sandbox);
/* Nobody inside may look into this process, whoever they are. */
void close_to_others(void);

#endif
