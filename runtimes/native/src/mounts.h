/*
 * The requested mounts: opens and checks sources again, makes targets inside the sandbox's root. All
 * functions end the start on failure.
 */
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

/*
 * Opens a source that the platform chose. A symbolic link on the path fails the start, because foreign code
 * may have made it.
 */
int open_own(const struct json *path);
/* Opens and checks the source. Later changes of the path have no effect on the mount. */
int open_source(const struct json *path, const struct json *policy);
/* Binds an opened source at `target` below `root`, unless it hides a needed path. */
void mount_source(int source, const struct json *target, bool is_readonly, const char *root, const struct needed *needed);
/* Writes an absolute path in its shortest form. False if the text is none. */
bool read_path(const struct json *text, char normal[PATH_MAX]);
void normalize_target(const struct json *target, char normal[PATH_MAX]);
/*
 * Opens a normal path inside `root`, and makes it if it is missing; links are followed as if `root` were /.
 * Returns -1 and the reason on failure.
 */
int open_target(const char *root, const char *target, bool wants_directory, const char **reason);
/* Writes the path to which a descriptor refers. */
void path_of(int descriptor, char path[PATH_MAX]);

#endif
