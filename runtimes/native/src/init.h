/* The init of a sandbox: reaps processes, writes the log, serves the control plane and reports the ending. */
#ifndef INIT_H
#define INIT_H

#include "sandbox.h"

/* Runs until the sandbox has ended. */
_Noreturn void run_init(const struct sandbox *sandbox);

#endif
