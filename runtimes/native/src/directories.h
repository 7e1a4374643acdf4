/* Lists of what is below a directory, and new directories; each answers itself. */
#ifndef DIRECTORIES_H
#define DIRECTORIES_H

#include "json.h"

void list_directory(int connection, const char *path, const struct json *request);
void make_directory(int connection, const char *path, const struct json *request);

#endif
