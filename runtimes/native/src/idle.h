/* A runtime without code: docs/reference/runtime-protocol.md. */
#ifndef IDLE_H
#define IDLE_H

#include <stdbool.h>

/* A connection of the service to the runtime. */
struct idle_peer {
    int connection;
    bool is_greeted;
};

/* Answers one frame. Returns false if the connection can be closed. STOP ends this process. */
bool serve_idle(struct idle_peer *peer, const char *secret);

#endif
