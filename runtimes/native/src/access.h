/* Access to a running sandbox: a child of init becomes the user and serves one connection. */
#ifndef ACCESS_H
#define ACCESS_H

#include "owner.h"
#include "sandbox.h"

enum access_kind { EXEC, DIAL, FILES, ACCOUNT_FILES, WATCHES, ACCESS_KINDS };

/* The name of the access that the process table serves (`table.h`). */
#define PROCESSES_NAME "processes"

/* Returns ACCESS_KINDS if there is none of that name. */
enum access_kind access_kind_of(const char *name);
/* The limit of open accesses of one kind in one sandbox, and their name in sentences. */
int most_accesses(enum access_kind kind);
const char *plural_of(enum access_kind kind);
/*
 * Makes the kernel kill this process first, and not the agent, when memory is exhausted. Called while this
 * process is root.
 */
void prefer_as_oom_victim(void);
/* Becomes the user, reads the request and serves it. */
_Noreturn void serve_access(int connection, const struct sandbox *sandbox, enum access_kind kind);
/* Runs one command, and sends its output after its end. This process keeps the rights of init. */
_Noreturn void serve_command(int connection, const struct sandbox *sandbox);
/* Runs a command with open input and output streams. */
_Noreturn void serve_stream(int connection, const struct sandbox *sandbox, const struct json *request);
/* Connects to a port of this network's loopback, and copies bytes both ways. */
_Noreturn void serve_dial(int connection, const struct json *request);
/* Serves one file request in the surroundings and with the rights of this process. */
_Noreturn void serve_files(int connection, const struct json *request);
/* Serves one file request for an account, with the rights of this process. */
_Noreturn void serve_account_files(int connection, const struct json *request, const struct owner *owner);
/* Reports the changes below a directory until the caller disconnects. */
_Noreturn void serve_watch(int connection, const struct json *request, const struct owner *owner);

#endif
