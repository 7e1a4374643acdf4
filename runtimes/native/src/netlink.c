#include "netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { REPLY_SECONDS = 5, ROOM = 1024, NO_ADDRESS = 1 };

/* One request; its size is known and small, so bounds are not checked. */
struct request {
    struct nlmsghdr header;
    char content[ROOM];
};

static struct request begin(int kind, int flags, const void *content, size_t size)
{
    struct request request = {.header = {.nlmsg_len = NLMSG_LENGTH(size), .nlmsg_type = kind, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags}};
    memcpy(request.content, content, size);
    return request;
}

static struct rtattr *add(struct request *request, int kind, const void *content, size_t size)
{
    struct rtattr *attribute = (struct rtattr *)((char *)request + NLMSG_ALIGN(request->header.nlmsg_len));
    attribute->rta_type = kind;
    attribute->rta_len = RTA_LENGTH(size);
    if (size > 0)
        memcpy(RTA_DATA(attribute), content, size);
    request->header.nlmsg_len = NLMSG_ALIGN(request->header.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
    return attribute;
}

/* Sets the size of an attribute that contains all attributes after it. */
static void end(struct request *request, struct rtattr *attribute)
{
    attribute->rta_len = (unsigned short)((char *)request + request->header.nlmsg_len - (char *)attribute);
}

static bool ask(int netlink, struct request *request)
{
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
        char rest[ROOM];
    } reply;
    if (send(netlink, request, request->header.nlmsg_len, 0) < 0)
        return false;
    ssize_t count;
    do
        count = recv(netlink, &reply, sizeof reply, 0);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        return false;
    if (reply.header.nlmsg_type == NLMSG_ERROR && reply.error.error != 0) {
        errno = -reply.error.error;
        return false;
    }
    return true;
}

int open_netlink(void)
{
    return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
}

static struct ifinfomsg link_of(int index, unsigned flags)
{
    return (struct ifinfomsg){.ifi_family = AF_UNSPEC, .ifi_index = index, .ifi_flags = flags, .ifi_change = flags};
}

bool set_up(int netlink, int index)
{
    struct ifinfomsg about = link_of(index, IFF_UP);
    struct request request = begin(RTM_NEWLINK, 0, &about, sizeof about);
    return ask(netlink, &request);
}

/* One queue: the kernel would make one for each processor, with a directory for each. */
static void add_queues(struct request *request)
{
    const uint32_t one = 1;
    add(request, IFLA_NUM_TX_QUEUES, &one, sizeof one);
    add(request, IFLA_NUM_RX_QUEUES, &one, sizeof one);
}

bool add_pair(int netlink, const char *name, const char *peer)
{
    struct timeval patience = {REPLY_SECONDS, 0};
    struct ifinfomsg none = link_of(0, 0);
    /* Uses the pid in the namespace of this process. */
    uint32_t pid = (uint32_t)getpid();
    setsockopt(netlink, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    struct request request = begin(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &none, sizeof none);
    add(&request, IFLA_IFNAME, name, strlen(name) + 1);
    add_queues(&request);
    struct rtattr *info = add(&request, IFLA_LINKINFO, NULL, 0);
    add(&request, IFLA_INFO_KIND, "veth", 4);
    struct rtattr *data = add(&request, IFLA_INFO_DATA, NULL, 0);
    struct rtattr *other = add(&request, VETH_INFO_PEER, &none, sizeof none);
    add(&request, IFLA_IFNAME, peer, strlen(peer) + 1);
    add(&request, IFLA_NET_NS_PID, &pid, sizeof pid);
    add_queues(&request);
    end(&request, other);
    end(&request, data);
    end(&request, info);
    return ask(netlink, &request);
}

int find_interface(int netlink, const char *name)
{
    struct ifreq about = {0};
    strncpy(about.ifr_name, name, sizeof about.ifr_name - 1);
    /* Not over rtnetlink, whose lock is global to the machine. */
    return ioctl(netlink, SIOCGIFINDEX, &about) < 0 ? 0 : about.ifr_ifindex;
}

bool forgo_ipv6(int netlink, int index)
{
    const uint8_t mode = NO_ADDRESS;
    struct ifinfomsg about = link_of(index, 0);
    struct request request = begin(RTM_SETLINK, 0, &about, sizeof about);
    struct rtattr *families = add(&request, IFLA_AF_SPEC, NULL, 0);
    struct rtattr *family = add(&request, AF_INET6, NULL, 0);
    add(&request, IFLA_INET6_ADDR_GEN_MODE, &mode, sizeof mode);
    end(&request, family);
    end(&request, families);
    /* A machine without IPv6 needs no change. */
    return ask(netlink, &request) || errno == EAFNOSUPPORT;
}

bool add_address(int netlink, int index, uint32_t own, uint32_t other)
{
    struct ifaddrmsg about = {.ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = (unsigned)index};
    const uint32_t ours = htonl(own), theirs = htonl(other);
    struct request request = begin(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &about, sizeof about);
    add(&request, IFA_LOCAL, &ours, sizeof ours);
    add(&request, IFA_ADDRESS, &theirs, sizeof theirs);
    return ask(netlink, &request);
}

static struct rtmsg route_of(unsigned char type, int bits)
{
    return (struct rtmsg){.rtm_family = AF_INET, .rtm_dst_len = (unsigned char)bits, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_STATIC,
                          .rtm_scope = RT_SCOPE_UNIVERSE, .rtm_type = type};
}

bool add_default_route(int netlink, int index, uint32_t gateway)
{
    const uint32_t way = htonl(gateway), out = (uint32_t)index;
    struct rtmsg about = route_of(RTN_UNICAST, 0);
    struct request request = begin(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &about, sizeof about);
    add(&request, RTA_GATEWAY, &way, sizeof way);
    add(&request, RTA_OIF, &out, sizeof out);
    return ask(netlink, &request);
}

bool add_prohibition(int netlink, uint32_t first, int bits)
{
    const uint32_t target = htonl(first);
    struct rtmsg about = route_of(RTN_PROHIBIT, bits);
    struct request request = begin(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &about, sizeof about);
    add(&request, RTA_DST, &target, sizeof target);
    return ask(netlink, &request);
}
