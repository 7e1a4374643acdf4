/* Checks of the user's program before its sandbox starts, from inside its root. */
#ifndef DEPLOYED_H
#define DEPLOYED_H

#include <stdbool.h>

#include "identity.h"
#include "json.h"

/*
 * Ends the start if the program's directory is empty, or the program is missing or not executable for the
 * user. Same rules as `rookery_zygote/program.py`.
 */
void check_deployed(const struct json *command, const struct identity *user, bool sets_ids);

#endif
