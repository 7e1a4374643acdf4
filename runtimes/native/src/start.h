/* Turns a worker into an instance: everything between the request and the user's code. */
#ifndef START_H
#define START_H

#include "worker.h"

/* Waits for the request and performs it. Ends the process if there is none, or if it fails. */
void start_instance(struct worker *worker);

#endif
