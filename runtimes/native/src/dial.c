/* A connection to a port of this network's loopback, passed on byte for byte. */
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
#include "ways.h"

enum {
    CONNECT_MS = 5000,
    CHUNK = 262144,
    /* How long a port may take nothing of what a caller has sent that has left since. */
    LEFT_MS = 60000,
};
/* The sides: the connection of the service, for its caller, and that to the port. */
enum { CALLER, PORT };

/* What has been read from one side and not been written to the other. */
struct direction {
    int source, target;
    char *chunk;
    const char *left;
    size_t left_size;
    bool has_ended;
};

/* 0, or why not. */
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

/* The socket, or -1 and whether the port did not answer in time. */
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

/* False when the other side broke off. */
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

/* What its source had sent before it left, as far as the target takes it now. */
static void pass_rest(struct direction *direction)
{
    if (direction->left_size > 0 && !write_left(direction))
        return;
    while (direction->left_size == 0 && !direction->has_ended) {
        if (!read_more(direction))
            return;
    }
}

/* False when a side has broken off. A direction has the number of its source. */
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
        /* `poll` would say again and again that it has hung up, whatever is asked; it passes over what is negative. */
        for (int index = 0; index < 2; index++) {
            if (has_hung_up[index] && waits[index].events == 0)
                waits[index].fd = -1;
        }
        if (poll(waits, 2, has_hung_up[CALLER] ? LEFT_MS : -1) == 0)
            return false;
        for (int index = 0; index < 2; index++)
            has_hung_up[index] = has_hung_up[index] || (waits[index].revents & POLLHUP);
        /* With the answer open it has not only ended its own side: nobody is there to hear the rest, and the port may never read again. */
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
        /* A side that broke off is an error for the other one too: with a linger of nothing the end is a reset. */
        struct linger nothing = {1, 0};
        setsockopt(target, SOL_SOCKET, SO_LINGER, &nothing, sizeof nothing);
    }
    _exit(0);
}
