/* What init knows of its sandbox. */
#ifndef SANDBOX_H
#define SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "json.h"

/* In its directory: the socket of the runtime, which a program has in a directory of its own below it, and that of init. */
#define SOCKET_NAME "runtime.sock"
#define CONTROL_NAME "init.sock"
/*
 * What others must know to find, judge and remove it: one JSON object, behind which there is room for how it ended. A file of its own for that would
 * be one more to make and to remove, and a full disk has no place for it.
 */
#define STATE_NAME "state.json"
enum { ROOM_FOR_ENDING = 512 };

struct sandbox {
    /* Texts of names and values. */
    const struct json *env;
    const char *working_dir;
    uid_t uid;
    gid_t gid;
    gid_t *groups;
    size_t group_count;
    /* Whether a process of the user sets these ids; else it has them. */
    bool sets_ids;
    double memory_mb, most_open_files, most_processes;
    /* The layers that hold here (docs/internals/process-sandbox.md). */
    bool has_pid, has_user, has_capabilities, has_memory_group, has_pids_group;
    /* The user's process is a program of its own, with children that nobody else looks after. */
    bool is_program;
    pid_t user;
    /* Descriptors: of its directory on the host, where it listens, what the user's process writes, who hears the end, the count of kills. */
    int directory, listener, output, connection, oom_kills;
    /* Only held: while they are open, the program that passes packets on for this sandbox goes on. */
    int network_tie, network_words;
    size_t log_bytes;
    int log_files;
};

#endif
