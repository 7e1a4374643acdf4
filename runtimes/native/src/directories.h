/* Lists directories, and makes them. Each function answers the caller. */
#ifndef DIRECTORIES_H
#define DIRECTORIES_H

#include "json.h"

void list_directory(int connection, const char *path, const struct json *request);
void make_directory(int connection, const char *path, const struct json *request);

#endif
