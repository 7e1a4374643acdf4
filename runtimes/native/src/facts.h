/* The facts of entries of the file system, as `src/sandbox/files.ts` describes them. */
#ifndef FACTS_H
#define FACTS_H

#include <stdbool.h>
#include <sys/stat.h>

#include "buffer.h"
#include "json.h"

/*
 * Appends the facts of `name` in an open directory; `path` is its absolute path. False with errno, and
 * nothing appended, if there is none.
 */
bool add_facts(struct buffer *target, int directory, const char *name, const char *path);
/* Appends the facts that `about` already has. */
void add_known_facts(struct buffer *target, const struct stat *about, const char *path);
const char *kind_of(mode_t mode);
/* A user of /etc/passwd, with its name and home; the number and "/" if it does not exist. */
struct listed_user {
    const char *name, *home;
};
struct listed_user find_listed_user(uid_t uid);
/* Reads a file with names, at most its first megabyte. NULL if it is no text file that can be read. */
char *read_names_file(const char *file);
/*
 * Replaces all metadata of an open file. False with errno; EOPNOTSUPP if its file system stores none.
 */
bool replace_metadata(int descriptor, const struct json *metadata);

#endif
