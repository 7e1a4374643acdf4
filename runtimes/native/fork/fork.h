/*
 * What an interpreter calls to fork the workers of its zygote (`rookery_zygote/forking.py`). A library of its own, without a libc: what it
 * needs is there in every process that loads it, whichever libc that has. Of Python nothing runs between the forks but what the interpreter does at
 * each, so the memory that all instances share stays as it was.
 */
#ifndef FORK_H
#define FORK_H

#include <stddef.h>

/* What the library shows to who loads it. */
#define SHOWN __attribute__((visibility("default")))

enum { MOST_GROUPS = 3, LONGEST_NAME = 128 };

/* Which network a worker is in: the host's, one that reaches out, one that does not. */
enum network { HOST_NETWORK, OWN_NETWORK, NO_NETWORK };

/* Of this process's memory; whether it will be written to, or only read. */
struct run {
    void *start;
    size_t size;
    int is_written;
};

/* What is the same for every worker. */
struct forking {
    /* Descriptors: the native program, and what it is told of all workers. */
    int program, facts;
    /* The pid namespace to go back to after each worker got one; -1 when none is made, or in the worker's user namespace. */
    int own_pid_namespace;
    /* Each worker has a user namespace, in which root is this user, and all others are made in that; also the one of pids. */
    int has_user_namespace, makes_pid_namespace_inside;
    unsigned uid, gid;
    /* Which others are made (CLONE_NEW…), but for those of pids and networks. */
    int namespaces;
    /* Where the groups of workers are made: paths, and the names of the files that a process enters one by. */
    int group_count;
    const char *group_parents[MOST_GROUPS], *group_files[MOST_GROUPS], *group_layers[MOST_GROUPS];
    /* Of the user's process: whether it gives up capabilities and new privileges now, and its filter; size 0 when that comes later. */
    int drops_capabilities, has_no_new_privileges;
    const void *filter;
    size_t filter_size;
    /* What the user's process will use: it has it, and pages of its own where it will write, before it is asked for. */
    const struct run *runs;
    size_t run_count;
};

/* One worker. */
struct order {
    enum network network;
    /* Descriptors: to whoever ordered it; of its passage (`user_network.py`), -1 where there is none. */
    int control, teller, tie, words;
    char name[LONGEST_NAME];
};

/* One line of what an interpreter compares with its own copy of the structures: `forking`, `forking.program`, `HOST_NETWORK`. */
struct layout {
    char name[48];
    /* Of a structure: 0. Of an enumerator: its value. */
    unsigned offset;
    /* Of an enumerator: 0. */
    unsigned size;
};

/* Every member of the three structures in their order, then the networks. The last line has no name. */
SHOWN extern const struct layout fork_layout[];

enum {
    /* The worker cannot be forked. */
    NOT_FORKED = -1,
    /* This process cannot go back to its own pid namespace: its next children would be in another worker's. It must fork no more. */
    ASTRAY = -2,
};

/*
 * Forks a worker: its first process executes the native program, and that one's child, the user's process, returns from here with 0 once the
 * program has made the sandbox. Elsewhere the pid of the worker's first process, as it is known here, or NOT_FORKED or ASTRAY. What goes wrong
 * afterwards the control connection tells.
 */
SHOWN int fork_worker(const struct forking *forking, const struct order *order);

/*
 * Forks the workers that are ordered over this SEQPACKET connection (a `struct order` whose descriptors come along), and tells over it which
 * children have ended (the pid of each, an int). Returns 0 in the user's processes; 1 when the other side has gone, or this process is ASTRAY.
 */
SHOWN int serve_forks(const struct forking *forking, int connection);

#endif
