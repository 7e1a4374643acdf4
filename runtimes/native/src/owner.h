/* For whom the operations of `src/sandbox/files.ts` work, and where their paths lead. */
#ifndef OWNER_H
#define OWNER_H

#include <stdbool.h>
#include <sys/types.h>

#include "json.h"

struct owner {
    /* The owner of new entries. */
    uid_t uid;
    gid_t gid;
    /* Where relative paths start; NULL: at the directory of this process. */
    const char *home;
};

/*
 * Returns the path that a member of the request names, as it is written. Refuses the request and ends the
 * process if there is none, or if it cannot be a path. The caller frees it.
 */
char *member_path(int connection, const struct json *request, const char *member, bool may_be_empty);
/*
 * Returns the absolute path that a member of the request names, without `.`, `..` and empty parts. Refuses
 * the request if there is none.
 */
char *locate(int connection, const struct json *request, const char *member, const struct owner *owner);
/* Gives an open entry to the owner. True also if this process may not, but the entry is its own. */
bool give_to(const struct owner *owner, int descriptor);
/*
 * Opens the directory above an absolute path. With an `owner`, makes missing directories, which it gets.
 * `name` becomes the last part of the path, or "." for the root. -1 with errno on failure.
 */
int open_above(const char *path, const struct owner *owner, const char **name);

#endif
