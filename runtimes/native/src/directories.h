/* Lists directories, and makes them. */
#ifndef DIRECTORIES_H
#define DIRECTORIES_H

#include <dirent.h>
#include <stdbool.h>

#include "json.h"

void list_directory(int connection, const char *path, const struct json *request);
void make_directory(int connection, const char *path, const struct json *request);
/*
 * Reads the first `most` names of a directory in byte order, which may have millions, and whether there are
 * more. The caller frees the names.
 */
char **names_in(DIR *directory, size_t most, size_t *count, bool *is_cut);
/* Returns an absolute path without `.`, empty parts and `..`, which it removes from the text. */
char *normal(const char *path);
/* True if the caller has disconnected. */
bool has_left(int connection);

#endif
