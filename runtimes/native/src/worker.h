/* A sandbox that waits for its instance: the facts that its maker passes once. */
#ifndef WORKER_H
#define WORKER_H

#include "buffer.h"
#include "sandbox.h"

struct worker {
    /* The facts for `run_init`; the request has the rest. */
    struct sandbox sandbox;
    /* The facts that only a start needs, by name. */
    const struct json *facts;
    /*
     * Descriptors of the connection to the zygote or shim, the directories of workers and of instances, the
     * directory of the runtime's socket, that socket, the orders of the user's process, the namespace of
     * per-user limits, and this program.
     */
    int control, workers, instances, sockets, runtime_listener, orders, limits_namespace, program;
};

/*
 * Reads the facts from this descriptor, and closes it. False if they are invalid. Executed programs inherit
 * no descriptor.
 */
bool worker_read(struct worker *worker, int descriptor);
/* Reads one JSON object from this descriptor, and closes it. Its texts stay in memory. */
bool read_object(struct json *facts, int descriptor);
/* Reads the facts from a buffer, which must stay: texts refer to it. */
bool worker_read_from(struct worker *worker, struct buffer *told);
/* Executes this program again with `facts` and the same descriptors. Returns only on failure, with errno. */
void execute_again(const struct worker *worker, const struct buffer *facts);
/*
 * Receives the control plane's connection for this worker. -1 if the zygote has ended or discarded the
 * worker.
 */
int take_connection(int control);
/*
 * Installs a filter of system calls from the facts: two digits a byte, made by `rookery_zygote/seccomp.py`.
 * `filter` is that of a sandbox; `filterOfAccounts` lacks the refusal of setns. True if there is none.
 */
bool filter_as_told(const struct json *facts, const char *name);

#endif
