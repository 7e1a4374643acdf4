/*
 * The interface for an interpreter that forks the workers of its zygote (`rookery_zygote/forking.py`). The
 * library links to no libc: every process that loads it has the symbols that it needs. Between forks no
 * Python code runs except the interpreter's fork hooks, so that the memory that instances share stays
 * unchanged.
 */
#ifndef FORK_H
#define FORK_H

#include <stddef.h>

/* Marks the symbols that the library exports. */
#define SHOWN __attribute__((visibility("default")))

enum { MOST_GROUPS = 3, LONGEST_NAME = 128 };

/* The network of a worker: the host's, one with outside access, one without. */
enum network { HOST_NETWORK, OWN_NETWORK, NO_NETWORK };

/* A range of this process's memory, and whether it will be written or only read. */
struct run {
    void *start;
    size_t size;
    int is_written;
};

/* The settings that all workers share. */
struct forking {
    /* Descriptors of the native program and of the facts that all workers share. */
    int program, facts;
    /*
     * The pid namespace to return to after each fork. -1 if none is made, or if it is inside the worker's
     * user namespace.
     */
    int own_pid_namespace;
    /*
     * Each worker has a user namespace, in which root is this user. All other namespaces, also the pid
     * namespace, are made inside it.
     */
    int has_user_namespace, makes_pid_namespace_inside;
    unsigned uid, gid;
    /* The other namespaces to make (CLONE_NEW…), without pid and network. */
    int namespaces;
    /*
     * The parent paths of the workers' control groups, and the file names through which a process enters
     * them.
     */
    int group_count;
    const char *group_parents[MOST_GROUPS], *group_files[MOST_GROUPS], *group_layers[MOST_GROUPS];
    /*
     * For the user's process: whether it drops capabilities and new privileges now, and its filter. Size 0:
     * the filter is installed later.
     */
    int drops_capabilities, has_no_new_privileges;
    const void *filter;
    size_t filter_size;
    /*
     * The memory that the user's process will use: it is mapped before the first request, and written pages
     * are copied.
     */
    const struct run *runs;
    size_t run_count;
};

/* The order of one worker. */
struct order {
    enum network network;
    /*
     * Descriptors of the orderer and of the worker's user network (`user_network.py`); -1 where there is
     * none.
     */
    int control, teller, tie, words;
    char name[LONGEST_NAME];
};

/*
 * One line of the layout that an interpreter compares with its own copy: `forking`, `forking.program`,
 * `HOST_NETWORK`.
 */
struct layout {
    char name[48];
    /* 0 for a structure, the value for an enumerator. */
    unsigned offset;
    /* 0 for an enumerator. */
    unsigned size;
};

/* All members of the three structures in order, then the networks. The last line has no name. */
SHOWN extern const struct layout fork_layout[];

enum {
    /* The worker cannot be forked. */
    NOT_FORKED = -1,
    /*
     * This process cannot return to its own pid namespace: further children would be in another worker's. It
     * must not fork again.
     */
    ASTRAY = -2,
};

/*
 * Forks a worker. The first process executes the native program. Its child, the user's process, returns 0
 * from here once the program has made the sandbox. The caller gets the pid of the first process, NOT_FORKED
 * or ASTRAY. Later failures are reported over the control connection.
 */
SHOWN int fork_worker(const struct forking *forking, const struct order *order);

/*
 * Forks the workers that this SEQPACKET connection orders (a `struct order` with its descriptors), and
 * reports the pid of each ended child (an int) over it. Returns 0 in the user's processes; 1 when the peer
 * has closed, or this process is ASTRAY.
 */
SHOWN int serve_forks(const struct forking *forking, int connection);

#endif
