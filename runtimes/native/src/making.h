/* What makes a sandbox, before anybody asks for it: everything that does not depend on the request. */
#ifndef MAKING_H
#define MAKING_H

#include "worker.h"

/*
 * This process, which `runtimes/native/fork` has forked into its groups and namespaces, makes the rest of its sandbox: its directory, network and
 * root, and lets the user's process go on. `facts`: a descriptor of what is the same for all workers; `own`: what is told of this one. Ends
 * this process when it cannot be done, once it has told the reason to whoever ordered it and to who waits for it.
 */
void make_worker(struct worker *worker, int facts, char *own);

#endif
