#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

bool write_to(const char *path, const char *text)
{
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    bool is_written = write(descriptor, text, strlen(text)) > 0;
    int number = errno;
    close(descriptor);
    errno = number;
    return is_written;
}

static bool read_capabilities(struct __user_cap_data_struct held[2])
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    return syscall(SYS_capget, &header, held) == 0;
}

bool keep_capabilities(uint64_t capabilities)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct held[2];
    if (!read_capabilities(held))
        return false;
    for (int word = 0; word < 2; word++) {
        held[word].permitted &= (uint32_t)(capabilities >> (32 * word));
        held[word].effective = held[word].permitted;
        held[word].inheritable = 0;
    }
    return syscall(SYS_capset, &header, held) == 0;
}

static bool drop_bounding(void)
{
    struct __user_cap_data_struct held[2];
    if (!read_capabilities(held))
        return false;
    /* A process without the capability cannot drop more, and need not. */
    if (held[0].permitted == 0 && held[1].permitted == 0)
        return true;
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    for (unsigned long number = 0; number < 64; number++) {
        if (prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0)
            /* Stops at the first number that the kernel does not know. */
            return number > 0 && errno == EINVAL;
    }
    return true;
}

bool drop_privileges(bool drops_capabilities, bool has_no_new_privileges)
{
    if (drops_capabilities && (!keep_capabilities(EVERY_CAPABILITY) || !drop_bounding()))
        return false;
    return !has_no_new_privileges || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

bool filter_calls(const void *filter, size_t size)
{
    struct sock_fprog program = {(unsigned short)(size / sizeof(struct sock_filter)), (struct sock_filter *)filter};
    /* Kernels before 4.17 do not know the flag. */
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0 ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

/* The control part of a message, which holds the descriptors. */
union rights {
    char bytes[CMSG_SPACE(MOST_PASSED * sizeof(int))];
    struct cmsghdr header;
};

bool send_with(int connection, const void *data, size_t size, const int *descriptors, int count)
{
    union rights room;
    struct iovec part = {(void *)data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    size_t given = (size_t)count * sizeof(int);
    if (count > 0) {
        message.msg_control = room.bytes;
        message.msg_controllen = CMSG_SPACE(given);
        room.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(given), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&room.header), descriptors, given);
    }
    return sendmsg(connection, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

int receive_with(int connection, void *data, size_t size, int *descriptors, int most)
{
    union rights room;
    struct iovec part = {data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof room.bytes};
    ssize_t count;
    do
        count = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    while (count < 0 && errno == EINTR);
    if (count != (ssize_t)size)
        return -1;
    if (message.msg_controllen < sizeof(struct cmsghdr) || room.header.cmsg_type != SCM_RIGHTS)
        return 0;
    int found = (int)((room.header.cmsg_len - CMSG_LEN(0)) / sizeof(int));
    if (found > most)
        return -1;
    memcpy(descriptors, CMSG_DATA(&room.header), (size_t)found * sizeof(int));
    return found;
}
