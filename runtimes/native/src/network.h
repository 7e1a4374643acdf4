/* The network of a worker: with outside access, or loopback only. All functions fail with errno. */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdbool.h>

#include "buffer.h"
#include "json.h"

enum { ADDRESS = 16 };

/* Activates loopback in the network that only this process uses. */
bool begin_loopback(void);
/*
 * Connects the network of this process to the host's, where the socket `outside` is. The address is from the
 * range of `networks` (`first`, `last` and `gateway`, numbers). The interfaces are named after the address,
 * and the kernel refuses a name twice: so the kernel assigns addresses to any number of zygotes and servers.
 * The interfaces end with the network, and the network with its last process.
 */
bool tie_network(const struct json *networks, int outside, char address[ADDRESS]);
/*
 * Waits until the program at the other end of `teller` and `words` (`user_network.py`) forwards packets of
 * this network. `why`: its last output if it has ended.
 */
bool await_passage(const struct json *networks, int pid, int teller, int words, struct buffer *why);

#endif
