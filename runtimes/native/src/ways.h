/* The ways into a running sandbox: a child of init becomes the user and serves one connection. */
#ifndef WAYS_H
#define WAYS_H

#include "sandbox.h"

enum way { EXEC, DIAL, FILES, WAYS };

/* WAYS when there is none of that name. */
enum way way_of(const char *name);
/* How many of each may be open in one sandbox at a time, and what they are in words. */
int most_open(enum way way);
const char *words_of(enum way way);
/* Becomes the user, reads the request and does it. */
_Noreturn void serve_way(int connection, const struct sandbox *sandbox, enum way way);
/* One command whose output is sent when it has ended; this process stays init's. */
_Noreturn void serve_command(int connection, const struct sandbox *sandbox);
/* A command whose input and outputs are open streams. */
_Noreturn void serve_stream(int connection, const struct sandbox *sandbox, const struct json *request);
/* A connection to a port of this network's loopback, passed on byte for byte. */
_Noreturn void serve_dial(int connection, const struct json *request);
/* The files of wherever this process is, with the rights that it has. */
_Noreturn void serve_files(int connection, const struct json *request);

#endif
