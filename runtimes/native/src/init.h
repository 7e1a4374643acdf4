/* The init of a sandbox: it reaps, keeps the log, serves the control plane and tells the end. */
#ifndef INIT_H
#define INIT_H

#include "sandbox.h"

/* Until the sandbox has ended. */
_Noreturn void run_init(const struct sandbox *sandbox);

#endif
