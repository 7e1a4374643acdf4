/* The facts that init has about its sandbox. */
#ifndef SANDBOX_H
#define SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "json.h"

/*
 * Names in the sandbox's directory: the runtime's socket (a program has it in a subdirectory), and init's
 * socket.
 */
#define SOCKET_NAME "runtime.sock"
#define CONTROL_NAME "init.sock"
/*
 * The state that other processes need to find, judge and remove the sandbox: one JSON object, followed by
 * space for the ending. A separate file would have to be made and removed, and a full disk has no space for
 * it.
 */
#define STATE_NAME "state.json"
enum { ROOM_FOR_ENDING = 512 };

struct sandbox {
    /* Names and values. */
    const struct json *env;
    const char *working_dir;
    uid_t uid;
    gid_t gid;
    gid_t *groups;
    size_t group_count;
    /* True if a process of the user has to set these ids; otherwise it already has them. */
    bool sets_ids;
    double memory_mb, most_open_files, most_processes;
    /* The layers that work here (docs/internals/process-sandbox.md). */
    bool has_pid, has_user, has_capabilities, has_memory_group, has_pids_group;
    /* True if it has the accounts `root` and `user` (`account.h`). */
    bool has_accounts;
    /* The user namespace of the accounts; -1 if both are the one user of the sandbox. */
    int accounts_namespace;
    /*
     * In a container: the name of the default account. All accounts are those of /etc/passwd then
     * (`listed.h`). NULL elsewhere.
     */
    const char *listed_default;
    /* The user's process is a program, whose child processes only init ends. */
    bool is_program;
    pid_t user;
    /*
     * Descriptors of its directory on the host, its listener, the output of the user's process, the client
     * that waits for the end, and the count of kills.
     */
    int directory, listener, output, connection, oom_kills;
    /* Kept open: the program that forwards packets for this sandbox runs until they close. */
    int network_tie, network_words;
    size_t log_bytes;
    int log_files;
};

#endif
