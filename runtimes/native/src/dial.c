/* Connects the caller to a port of this network's loopback, and copies bytes both ways. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frames.h"
#include "access.h"

enum {
    CONNECT_MS = 5000,
    CHUNK = 262144,
    /* The time in which a port must accept more data from a caller that has disconnected. */
    LEFT_MS = 60000,
};
/* The two sides: the service's connection for its caller, and the connection to the port. */
enum { CALLER, PORT };

/* Data that was read from one side and not yet written to the other. */
struct direction {
    int source, target;
    char *chunk;
    const char *left;
    size_t left_size;
    bool has_ended;
};

/* 0, or the errno of the failure. */
static int connect_to(const struct sockaddr *address, socklen_t size, int *target)
{
    *target = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*target < 0)
        return errno;
    int number = connect(*target, address, size) == 0 ? 0 : errno;
    if (number == EINPROGRESS) {
        struct pollfd wait = {*target, POLLOUT, 0};
        socklen_t length = sizeof number;
        if (poll(&wait, 1, CONNECT_MS) == 0)
            number = ETIMEDOUT;
        else
            getsockopt(*target, SOL_SOCKET, SO_ERROR, &number, &length);
    }
    if (number != 0)
        close(*target);
    return number;
}

/* Returns the socket, or -1 and whether the connection timed out. */
static int connect_to_port(int port, bool *is_silent)
{
    struct sockaddr_in first = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 second = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int target, on = 1;
    int number = connect_to((struct sockaddr *)&first, sizeof first, &target);
    *is_silent = number == ETIMEDOUT;
    if (number != 0)
        number = connect_to((struct sockaddr *)&second, sizeof second, &target);
    *is_silent = *is_silent || number == ETIMEDOUT;
    if (number != 0)
        return -1;
    setsockopt(target, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return target;
}

/* Returns false if the target is broken. */
static bool write_left(struct direction *direction)
{
    ssize_t count = send(direction->target, direction->left, direction->left_size, MSG_NOSIGNAL);
    if (count < 0)
        return errno == EAGAIN;
    direction->left += count;
    direction->left_size -= (size_t)count;
    return true;
}

static bool read_more(struct direction *direction)
{
    ssize_t count = recv(direction->source, direction->chunk, CHUNK, 0);
    if (count < 0)
        return errno == EAGAIN;
    if (count == 0) {
        direction->has_ended = true;
        shutdown(direction->target, SHUT_WR);
        return true;
    }
    direction->left = direction->chunk;
    direction->left_size = (size_t)count;
    return write_left(direction);
}

/* Passes the data that the source sent before it disconnected, as far as the target accepts it now. */
static void pass_rest(struct direction *direction)
{
    if (direction->left_size > 0 && !write_left(direction))
        return;
    while (direction->left_size == 0 && !direction->has_ended) {
        if (!read_more(direction))
            return;
    }
}

/*
 * Copies data until both sides have ended. Returns false if one side is broken. Directions are numbered by
 * their source.
 */
static bool pass_on(struct direction directions[2])
{
    bool has_hung_up[2] = {false, false};
    while (!directions[CALLER].has_ended || !directions[PORT].has_ended) {
        struct pollfd waits[2] = {{directions[CALLER].source, 0, 0}, {directions[PORT].source, 0, 0}};
        for (int index = 0; index < 2; index++) {
            if (directions[index].left_size > 0)
                waits[1 - index].events |= POLLOUT;
            else if (!directions[index].has_ended)
                waits[index].events |= POLLIN;
        }
        /*
         * `poll` reports a hang-up again and again, whatever events are requested. It ignores negative
         * descriptors.
         */
        for (int index = 0; index < 2; index++) {
            if (has_hung_up[index] && waits[index].events == 0)
                waits[index].fd = -1;
        }
        if (poll(waits, 2, has_hung_up[CALLER] ? LEFT_MS : -1) == 0)
            return false;
        for (int index = 0; index < 2; index++)
            has_hung_up[index] = has_hung_up[index] || (waits[index].revents & POLLHUP);
        /* The caller has closed both directions and reads no more, and the port may never read again. */
        if (has_hung_up[CALLER] && !directions[PORT].has_ended) {
            pass_rest(&directions[CALLER]);
            return false;
        }
        for (int index = 0; index < 2; index++) {
            struct direction *direction = &directions[index];
            short source = waits[index].revents, target = waits[1 - index].revents;
            if ((target | source) & (POLLERR | POLLNVAL))
                return false;
            if (direction->left_size > 0) {
                if ((target & (POLLOUT | POLLHUP)) && !write_left(direction))
                    return false;
            } else if (!direction->has_ended && source && !read_more(direction)) {
                return false;
            }
        }
    }
    return true;
}

_Noreturn void serve_dial(int connection, const struct json *request)
{
    int port = (int)json_number(request, "port");
    bool is_silent;
    int target = connect_to_port(port, &is_silent);
    if (target < 0) {
        if (is_silent)
            refuse(connection, "unavailable", "port %d does not answer", port);
        else
            refuse(connection, "unavailable", "nothing listens on port %d", port);
        _exit(0);
    }
    send_format(connection, "{\"ok\":true}");
    struct direction directions[2] = {
        [CALLER] = {.source = connection, .target = target, .chunk = allocate(CHUNK)},
        [PORT] = {.source = target, .target = connection, .chunk = allocate(CHUNK)},
    };
    fcntl(connection, F_SETFL, O_NONBLOCK);
    if (!pass_on(directions)) {
        /* A reset tells the other side that the connection broke. A linger time of zero causes it. */
        struct linger nothing = {1, 0};
        setsockopt(target, SOL_SOCKET, SO_LINGER, &nothing, sizeof nothing);
    }
    _exit(0);
}
