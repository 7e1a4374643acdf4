/* A sandbox that waits for its instance: what the one that made it tells, once. */
#ifndef WORKER_H
#define WORKER_H

#include "buffer.h"
#include "sandbox.h"

struct worker {
    /* What `run_init` will know; the request brings the rest. */
    struct sandbox sandbox;
    /* Facts that only a start needs, by name. */
    const struct json *facts;
    /* Descriptors: to the zygote or the shim, the directories of workers and of instances, that of the runtime's socket, the socket itself, where the
       user's process has its orders from, the namespace of the limits that count by user, this program. */
    int control, workers, instances, sockets, runtime_listener, orders, limits_namespace, program;
};

/* Reads all of it from this descriptor, and closes it. False when it makes no sense. No program that is executed gets one of its descriptors. */
bool worker_read(struct worker *worker, int descriptor);
/* The same from a buffer, which stays: sentences and paths are in it. */
bool worker_read_from(struct worker *worker, struct buffer *told);
/* Executes this program again, which is told `facts` and has the same descriptors. Returns when it fails: errno says why. */
void execute_again(const struct worker *worker, const struct buffer *facts);
/* The connection of the control plane that wants a worker; -1 when the zygote ended or gave it up. */
int take_connection(int control);
/* The filter of system calls that is in the facts, two digits a byte, as `rookery_zygote/seccomp.py` makes it; true when there is none. */
bool filter_as_told(const struct json *facts);

#endif
