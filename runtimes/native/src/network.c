#include "network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "moment.h"
#include "netlink.h"

enum {
    /* The index of loopback in every network. */
    LOOPBACK = 1,
    TIES = 64,
    READY_MS = 10000,
    LOOK_MS = 2,
    LONGEST_WORDS = 512,
    ROUTES = 65536,
};
static const char INSIDE[] = "eth0";

bool begin_loopback(void)
{
    int inside = open_netlink();
    bool is_up = inside >= 0 && set_up(inside, LOOPBACK);
    int number = errno;
    close(inside);
    errno = number;
    return is_up;
}

static uint32_t number_of(const struct json *networks, const char *key)
{
    return (uint32_t)json_number(networks, key);
}

/* Makes a pair of interfaces, named after its address. Returns the address, or 0 on failure. */
static uint32_t add_tie(const struct json *networks, int outside, char name[ADDRESS])
{
    uint32_t first = number_of(networks, "first"), last = number_of(networks, "last"), chance;
    for (int tried = 0; tried < TIES; tried++) {
        if (getrandom(&chance, sizeof chance, 0) != sizeof chance)
            return 0;
        /* Skips the network address, the host's address and the broadcast address. */
        uint32_t number = first + 2 + chance % (last - first - 2);
        snprintf(name, ADDRESS, "rk%08x", number);
        if (add_pair(outside, name, INSIDE))
            return number;
        if (errno != EEXIST)
            return 0;
    }
    errno = EADDRNOTAVAIL;
    return 0;
}

static bool tie(const struct json *networks, int outside, int inside, uint32_t *address)
{
    char name[ADDRESS];
    uint32_t gateway = number_of(networks, "gateway"), number = add_tie(networks, outside, name);
    if (number == 0)
        return false;
    *address = number;
    int index = find_interface(inside, INSIDE), host_end = find_interface(outside, name);
    return index > 0 && host_end > 0 && forgo_ipv6(inside, index) && add_address(inside, index, number, gateway) && set_up(inside, LOOPBACK) &&
           set_up(inside, index) && forgo_ipv6(outside, host_end) && add_address(outside, host_end, gateway, number) &&
           set_up(outside, host_end) && add_default_route(inside, index, gateway);
}

bool tie_network(const struct json *networks, int outside, char address[ADDRESS])
{
    uint32_t number;
    int inside = open_netlink();
    bool is_tied = inside >= 0 && tie(networks, outside, inside, &number);
    int reason = errno;
    close(inside);
    close(outside);
    errno = reason;
    if (!is_tied)
        return false;
    struct in_addr about = {htonl(number)};
    inet_ntop(AF_INET, &about, address, ADDRESS);
    return true;
}

static bool has_default_route(void)
{
    static char table[ROUTES];
    int descriptor = open("/proc/self/net/route", O_RDONLY | O_CLOEXEC);
    ssize_t count = descriptor < 0 ? 0 : read(descriptor, table, sizeof table - 1);
    close(descriptor);
    table[count > 0 ? count : 0] = '\0';
    for (char *line = strchr(table, '\n'); line != NULL; line = strchr(line + 1, '\n')) {
        char destination[16];
        if (sscanf(line + 1, "%*s %15s", destination) == 1 && strcmp(destination, "00000000") == 0)
            return true;
    }
    return false;
}

/* Returns false at the end of the output. */
static bool hear(int words, struct buffer *why)
{
    char said[LONGEST_WORDS];
    struct pollfd look = {words, POLLIN, 0};
    if (poll(&look, 1, 0) <= 0)
        return true;
    ssize_t count = read(words, said, sizeof said);
    if (count <= 0)
        return false;
    /*
     * The program may print a warning and continue: pasta does so if the host's name server is on loopback.
     */
    buffer_add(why, said, (size_t)count);
    if (why->size > LONGEST_WORDS)
        buffer_take(why, why->size - LONGEST_WORDS);
    return true;
}

static bool prohibit(const struct json *networks)
{
    const struct json *forbidden = json_get(networks, "forbidden");
    int inside = open_netlink();
    bool is_done = inside >= 0 && set_up(inside, LOOPBACK);
    for (size_t index = 0; is_done && index < forbidden->count; index++) {
        const struct json *prefix = &forbidden->items[index];
        is_done = add_prohibition(inside, number_of(prefix, "first"), (int)json_number(prefix, "bits"));
    }
    int reason = errno;
    close(inside);
    errno = reason;
    return is_done;
}

bool await_passage(const struct json *networks, int pid, int teller, int words, struct buffer *why)
{
    char number[16];
    /* Disables the link-local address of the interface. A machine without IPv6 needs no change. */
    int setting = open("/proc/sys/net/ipv6/conf/default/disable_ipv6", O_WRONLY | O_CLOEXEC);
    if (setting >= 0)
        (void)!write(setting, "1", 1);
    close(setting);
    int size = snprintf(number, sizeof number, "%d", pid);
    (void)!write(teller, number, (size_t)size);
    close(teller);
    long long deadline = after_ms(READY_MS);
    while (!has_default_route()) {
        if (!hear(words, why)) {
            errno = EIO;
            return false;
        }
        if (has_passed(deadline)) {
            errno = ETIMEDOUT;
            return false;
        }
        poll(NULL, 0, LOOK_MS);
    }
    return prohibit(networks);
}
