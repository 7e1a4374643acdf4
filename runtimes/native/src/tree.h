/* Lists and removes directories with everything below them. */
#ifndef TREE_H
#define TREE_H

#include <stdbool.h>

#include "json.h"

/*
 * Removes an entry of an open directory. What is missing counts as removed. Follows no link, and never leaves
 * the tree, whatever code inside does to it meanwhile. Stops when the caller disconnects. False with errno.
 */
bool remove_tree(int connection, int above, const char *name);
/* Lists depth-first with all facts, and answers the caller. */
void list_tree(int connection, const char *path, const struct json *request);

#endif
