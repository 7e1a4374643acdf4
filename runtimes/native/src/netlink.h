/* The requests of rtnetlink that connect two networks. All functions fail with errno. */
#ifndef NETLINK_H
#define NETLINK_H

#include <stdbool.h>
#include <stdint.h>

/* Opens a socket of the current network. -1 on failure. */
int open_netlink(void);
bool set_up(int netlink, int index);
/*
 * Makes `name` in the socket's network and its peer in the network of this process. EEXIST: the name is
 * taken.
 */
bool add_pair(int netlink, const char *name, const char *peer);
/* Returns the index of an interface in the socket's network, or 0. */
int find_interface(int netlink, const char *name);
/* Disables the link-local address of an interface, which would be a second path to its peer. */
bool forgo_ipv6(int netlink, int index);
/*
 * Gives an interface the address `own`, with the peer `other` and a route to it. Addresses are numbers in
 * host byte order.
 */
bool add_address(int netlink, int index, uint32_t own, uint32_t other);
bool add_default_route(int netlink, int index, uint32_t gateway);
/* Rejects packets to this prefix immediately, unless a longer prefix has a route. */
bool add_prohibition(int netlink, uint32_t first, int bits);

#endif
