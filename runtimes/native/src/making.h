/* Makes a sandbox in advance: everything that does not depend on the request. */
#ifndef MAKING_H
#define MAKING_H

#include "worker.h"

/*
 * Makes the rest of a sandbox: directory, network and root. Then continues the user's process.
 * `runtimes/native/fork` has forked this process into its groups and namespaces. `facts`: a descriptor of the
 * facts that all workers share; `own`: the facts of this one. On failure reports the reason to the orderer
 * and to a waiting client, and ends this process.
 */
void make_worker(struct worker *worker, int facts, char *own);

#endif
