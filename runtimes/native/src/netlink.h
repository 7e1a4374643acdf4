/* The few requests of rtnetlink that tie two networks together. Each fails with errno. */
#ifndef NETLINK_H
#define NETLINK_H

#include <stdbool.h>
#include <stdint.h>

/* A socket of the network that this process is in; -1 when it fails. */
int open_netlink(void);
bool set_up(int netlink, int index);
/* Makes `name` in the socket's network and its other end, `peer`, in the network of this process. EEXIST: the name is taken. */
bool add_pair(int netlink, const char *name, const char *peer);
/* The index of an interface of the socket's network; 0 when there is none. */
int find_interface(int netlink, const char *name);
/* It gets no link-local address when it comes up, and with it nobody a second way to the other end. */
bool forgo_ipv6(int netlink, int index);
/* Gives an interface the address `own`; at its other end is `other`, and the way there. Addresses are numbers of this machine's order. */
bool add_address(int netlink, int index, uint32_t own, uint32_t other);
bool add_default_route(int netlink, int index, uint32_t gateway);
/* Nothing is sent to the addresses of this prefix, unless a longer one says otherwise; a try fails at once. */
bool add_prohibition(int netlink, uint32_t first, int bits);

#endif
