/* The network of a worker: the way out of a new one, or loopback only. Each fails with errno. */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdbool.h>

#include "buffer.h"
#include "json.h"

enum { ADDRESS = 16 };

/* Brings up the loopback of the network that this process is alone in. */
bool begin_loopback(void);
/*
 * Ties the network that this process is alone in to the host's, where the socket `outside` is: with an address of the range that `networks`
 * names (`first`, `last` and `gateway`, numbers). Those ends are named after their address, and the kernel refuses a name twice: so it is the
 * kernel that gives the addresses out, to any number of zygotes and servers at once. Both ends go with the network, and the network with the last
 * process in it.
 */
bool tie_network(const struct json *networks, int outside, char address[ADDRESS]);
/*
 * Waits until the program at the other end of `teller` and `words` (`user_network.py`) passes on what is sent in this network. `why`: its last
 * words, when it has ended.
 */
bool await_passage(const struct json *networks, int pid, int teller, int words, struct buffer *why);

#endif
