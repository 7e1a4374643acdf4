/* From a worker to an instance: everything between the request and the user's code. */
#ifndef START_H
#define START_H

#include "worker.h"

/* Waits for the request and does it; ends the process where there is none, or where it cannot be done. */
void start_instance(struct worker *worker);

/* The connection of the control plane that wants a worker; -1 when the zygote ended or gave it up. */
int take_connection(int control);
/* Makes the built root that of every process of this mount namespace: from here on the host's files are out of reach but by descriptors. */
bool enter_root(const char *root);
/* The filter of system calls that is in the facts, two digits a byte, as `rookery_zygote/seccomp.py` makes it; true when there is none. */
bool filter_as_told(const struct json *facts);

#endif
