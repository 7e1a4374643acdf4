/* The rights of init, and their removal to become the user. */
#ifndef RIGHTS_H
#define RIGHTS_H

#include <stdbool.h>

#include "sandbox.h"

/*
 * Keeps the rights that init needs for its children: changing to the user, and killing. Executed programs
 * inherit none.
 */
bool keep_rights_of_init(const struct sandbox *sandbox);
/* Drops rights for all programs that are executed later. This process keeps its own rights. */
bool give_up_privileges(const struct sandbox *sandbox, bool has_no_new_privs);
/* Enters the namespace that maps root for the mounts. Any other user is in a further namespace inside it. */
bool enter_user_namespace(uid_t uid, gid_t gid);
/*
 * Enters a namespace whose owner is an otherwise unused uid, so that the kernel counts per-user limits there.
 * Rights on the host are lost.
 */
bool enter_namespace_of(uid_t owner, int namespace);
/* Sets the limits of a process of the user. */
bool limit_user(const struct sandbox *sandbox);
/* Sets the user's limits and ids, and drops all capabilities. */
bool become_user(const struct sandbox *sandbox);
/* Prevents all processes inside from inspecting this one, whatever their user. */
void forbid_inspection(void);

#endif
