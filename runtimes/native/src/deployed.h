/* What must be true of the user's program before its sandbox starts; seen from inside its root. */
#ifndef DEPLOYED_H
#define DEPLOYED_H

#include <stdbool.h>

#include "identity.h"
#include "json.h"

/* Ends the start when its directory has nothing in it, no program of that name, or one that the user may not execute. As `rookery_zygote/program.py`. */
void check_deployed(const struct json *command, const struct identity *user, bool sets_ids);

#endif
