/* From a worker to an instance: everything between the request and the user's code. */
#ifndef START_H
#define START_H

#include "worker.h"

/* Waits for the request and does it; ends the process where there is none, or where it cannot be done. */
void start_instance(struct worker *worker);

#endif
