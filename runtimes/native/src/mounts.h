/* The mounts that a create asks for: sources opened and checked again, targets made inside the sandbox's own root. Each ends the start when it fails. */
#ifndef MOUNTS_H
#define MOUNTS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "json.h"

/* Paths inside that a mount must not hide. */
struct needed {
    const char **paths;
    size_t count;
};

/* A descriptor of a source that the platform chose itself. A symbolic link on the path fails the start: foreign code may have put it there. */
int open_own(const struct json *path);
/* A descriptor of the source as it is now, checked: whatever happens to the path afterwards, this is what is mounted. */
int open_source(const struct json *path, const struct json *policy);
/* Binds an opened source at `target` of the root at `root`, unless that hides what is needed. */
void mount_source(int source, const struct json *target, bool is_readonly, const char *root, const struct needed *needed);
/* A path below / in its shortest form; false when the text is none. */
bool read_path(const struct json *text, char normal[PATH_MAX]);
void normalize_target(const struct json *target, char normal[PATH_MAX]);
/* A descriptor of a normal path inside `root`, made when it is missing; links are followed as if `root` were /. -1 and why, when it fails. */
int open_target(const char *root, const char *target, bool wants_directory, const char **reason);
/* Where a descriptor leads. */
void path_of(int descriptor, char path[PATH_MAX]);

#endif
