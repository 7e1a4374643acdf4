/* The init of a sandbox: it reaps, keeps the log, serves the control plane and tells the end. */
#ifndef INIT_H
#define INIT_H

#include "sandbox.h"

/*
 * The file of what others must know to find, judge and remove it: one JSON object, behind which there is room on the disk for how it ended, which a
 * full disk has no other place for.
 */
#define STATE_NAME "state.json"
enum { ROOM_FOR_ENDING = 512 };

/* Until the sandbox has ended. */
_Noreturn void run_init(const struct sandbox *sandbox);

#endif
