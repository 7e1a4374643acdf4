#include "fork.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/kernel.h"

enum {
    TITLE_SPACE = 96,
    TOLD = 1024,
    PATH = 4096,
    MAKE_TRIES = 5,
    /*
     * The descriptors of the user's process at the end: /dev/null, output twice, the runtime's listener, the
     * orders.
     */
    KEPT = 5,
    MOST_OPEN = 4096,
    SYS_CLOSE_RANGE = 436,
    /* MADV_POPULATE_READ, MADV_POPULATE_WRITE */
    POPULATE_READ = 22,
    POPULATE_WRITE = 23,
};

/* Hooks of the interpreter around a fork. Python 3.6 has fewer of them. */
extern void PyOS_BeforeFork(void) __attribute__((weak));
extern void PyOS_AfterFork_Parent(void) __attribute__((weak));
extern void PyOS_AfterFork_Child(void) __attribute__((weak));
extern void PyOS_AfterFork(void) __attribute__((weak));

/* The area of glibc in which the kernel stores the current processor of a thread. Absent in other libcs. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));
#ifdef __aarch64__
enum { RSEQ_SIGNATURE = 0xd428bc00 };
#else
enum { RSEQ_SIGNATURE = 0x53053053 };
#endif
/* The smallest size that the kernel accepts. */
enum { SMALLEST_RSEQ = 32 };

#define WHOLE(type) {#type, 0, sizeof(struct type)}
#define MEMBER(type, member) {#type "." #member, offsetof(struct type, member), sizeof((struct type *)0)->member}

const struct layout fork_layout[] = {
    WHOLE(forking),
    MEMBER(forking, program),
    MEMBER(forking, facts),
    MEMBER(forking, own_pid_namespace),
    MEMBER(forking, has_user_namespace),
    MEMBER(forking, makes_pid_namespace_inside),
    MEMBER(forking, uid),
    MEMBER(forking, gid),
    MEMBER(forking, namespaces),
    MEMBER(forking, group_count),
    MEMBER(forking, group_parents),
    MEMBER(forking, group_files),
    MEMBER(forking, group_layers),
    MEMBER(forking, drops_capabilities),
    MEMBER(forking, has_no_new_privileges),
    MEMBER(forking, filter),
    MEMBER(forking, filter_size),
    MEMBER(forking, runs),
    MEMBER(forking, run_count),
    WHOLE(run),
    MEMBER(run, start),
    MEMBER(run, size),
    MEMBER(run, is_written),
    WHOLE(order),
    MEMBER(order, network),
    MEMBER(order, control),
    MEMBER(order, teller),
    MEMBER(order, tie),
    MEMBER(order, words),
    MEMBER(order, name),
    {"HOST_NETWORK", HOST_NETWORK, 0},
    {"OWN_NETWORK", OWN_NETWORK, 0},
    {"NO_NETWORK", NO_NETWORK, 0},
    {"", 0, 0},
};

/* The arguments of the native program. */
static char title[TITLE_SPACE + 1], facts[16], told[TOLD];

static void keep_over_exec(int descriptor)
{
    if (descriptor >= 0)
        fcntl(descriptor, F_SETFD, 0);
}

/* Executes the native program. Returns only on failure. */
static void execute(const struct forking *forking, const struct order *order)
{
    const int passed[] = {forking->program, forking->facts, order->control};
    char *arguments[] = {title, facts, told, NULL}, *environment[] = {NULL};
    sigset_t none;
    memset(title, ' ', TITLE_SPACE);
    memcpy(title, "rookery: worker", 15);
    snprintf(facts, sizeof facts, "%d", forking->facts);
    for (size_t index = 0; index < sizeof passed / sizeof *passed; index++)
        keep_over_exec(passed[index]);
    /* Children inherit the signal mask. */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    syscall(SYS_execveat, forking->program, "", arguments, environment, AT_EMPTY_PATH);
}

/*
 * Reports a failure when the native program cannot do it. A caller that waits for the worker then only sees
 * the connection close.
 */
static void report_failure(const struct order *order, const char *layer, const char *what)
{
    char said[TOLD];
    int size = snprintf(said, sizeof said, "{\"failed\":\"the sandbox cannot be made: %s: %m\",\"layer\":\"%s\",\"reason\":\"%m\"}", what, layer);
    (void)!send(order->control, said, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Executes the native program to report the failure: the report may block, and this process must not. */
_Noreturn static void fail(const struct forking *forking, const struct order *order, const char *layer, const char *what)
{
    snprintf(told, sizeof told, "{\"name\":\"%s\",\"control\":%d,\"failed\":\"%s\",\"layer\":\"%s\",\"errno\":%d}", order->name,
             order->control, what, layer, errno);
    execute(forking, order);
    report_failure(order, "", "the native program cannot be executed");
    _exit(1);
}

/* In version 2 a controller counts in child groups only if the parent enables it. */
static void turn_on_controllers(const struct forking *forking, const char *parent)
{
    char path[PATH], word[LONGEST_NAME];
    for (int index = 0; index < forking->group_count; index++) {
        if (strcmp(forking->group_parents[index], parent) != 0 || strcmp(forking->group_files[index], "cgroup.procs") != 0)
            continue;
        snprintf(path, sizeof path, "%s/cgroup.subtree_control", parent);
        snprintf(word, sizeof word, "+%s", forking->group_layers[index] + sizeof "cgroup." - 1);
        write_to(path, word);
    }
}

/* Another service on this machine removes the shared subtree when it is empty. */
static bool make_group(const struct forking *forking, const char *parent, const char *path)
{
    for (int tried = 0; tried < MAKE_TRIES; tried++) {
        if (mkdir(path, 0755) == 0)
            return true;
        if (errno != ENOENT)
            return false;
        mkdir(parent, 0755);
        turn_on_controllers(forking, parent);
    }
    return false;
}

static void enter_groups(const struct forking *forking, const struct order *order)
{
    char path[PATH];
    for (int index = 0; index < forking->group_count; index++) {
        const char *parent = forking->group_parents[index], *layer = forking->group_layers[index];
        size_t size = (size_t)snprintf(path, sizeof path, "%s/%s", parent, order->name);
        bool is_known = false;
        for (int other = 0; other < index; other++)
            is_known = is_known || strcmp(forking->group_parents[other], parent) == 0;
        if (is_known)
            continue;
        if (!make_group(forking, parent, path))
            fail(forking, order, layer, "a control group cannot be made");
        snprintf(path + size, sizeof path - size, "/%s", forking->group_files[index]);
        if (!write_to(path, "0"))
            fail(forking, order, layer, "a control group cannot be entered");
    }
}

static void enter_user_namespace(const struct forking *forking, const struct order *order)
{
    char map[64];
    if (unshare(CLONE_NEWUSER) < 0)
        fail(forking, order, "user", "a user namespace cannot be made");
    snprintf(map, sizeof map, "0 %u 1", forking->uid);
    bool is_good = write_to("/proc/self/uid_map", map);
    /* A nested namespace has inherited the `deny` of its parent. */
    if (is_good)
        write_to("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", forking->gid);
    if (!is_good || !write_to("/proc/self/gid_map", map))
        fail(forking, order, "user", "the ids of a user namespace cannot be mapped");
}

static void enter_namespaces(const struct forking *forking, const struct order *order)
{
    static const struct {
        int flag;
        const char *layer;
    } kinds[] = {{CLONE_NEWNS, "mount"}, {CLONE_NEWIPC, "ipc"}, {CLONE_NEWUTS, "uts"}, {CLONE_NEWPID, "pid"}, {CLONE_NEWNET, "net"}};
    int asked = forking->namespaces | (order->network != HOST_NETWORK ? CLONE_NEWNET : 0) |
                (forking->makes_pid_namespace_inside ? CLONE_NEWPID : 0);
    for (size_t index = 0; index < sizeof kinds / sizeof *kinds; index++) {
        if ((asked & kinds[index].flag) && unshare(kinds[index].flag) < 0)
            fail(forking, order, kinds[index].layer, "a namespace cannot be made");
    }
}

/* The user's process */

/*
 * Enters a user namespace that `owner` owns, so that the kernel counts per-user limits there (`user_limits`).
 * The native program, which is outside, writes the maps. On failure restores the ids and returns false.
 */
static bool enter_limits(int orders, unsigned owner)
{
    int about = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /*
     * Changing the ids has cleared the effective capabilities, and some machines require them for a user
     * namespace.
     */
    if (about < 0 || syscall(SYS_setresuid, -1, owner, -1) < 0 || !keep_capabilities(EVERY_CAPABILITY) || unshare(CLONE_NEWUSER) < 0) {
        int number = errno;
        close(about);
        syscall(SYS_setresuid, 0, 0, 0);
        if (!keep_capabilities(EVERY_CAPABILITY) || !send_with(orders, &number, sizeof number, NULL, 0))
            _exit(1);
        return false;
    }
    int given[] = {open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC), about}, made = 0, mapped;
    if (!send_with(orders, &made, sizeof made, given, 2) || receive_with(orders, &mapped, sizeof mapped, NULL, 0) < 0 || mapped != 0)
        _exit(1);
    syscall(SYS_setresuid, 0, 0, 0);
    return true;
}

static void arrange(const int kept[KEPT])
{
    int moved[KEPT];
    /* Duplicates above the target range first, so that no descriptor is overwritten before it has moved. */
    for (int index = 0; index < KEPT; index++)
        moved[index] = fcntl(kept[index], F_DUPFD, 2 * KEPT);
    for (int index = 0; index < KEPT; index++) {
        if (moved[index] < 0 || dup2(moved[index], index) < 0)
            _exit(1);
    }
    /* Kernels before 5.9 lack the call. The fork server has only low descriptors open. */
    if (syscall(SYS_CLOSE_RANGE, KEPT, ~0U, 0) < 0) {
        for (int descriptor = KEPT; descriptor < MOST_OPEN; descriptor++)
            close(descriptor);
    }
}

/*
 * Registers the restartable-sequence area again. A process forked through vfork has lost the registration,
 * but its libc relies on it.
 */
static void restart_rseq(void)
{
    if (&__rseq_size == NULL || __rseq_size == 0)
        return;
    unsigned size = __rseq_size < SMALLEST_RSEQ ? SMALLEST_RSEQ : __rseq_size;
    syscall(SYS_rseq, (char *)__builtin_thread_pointer() + __rseq_offset, size, 0, RSEQ_SIGNATURE);
}

/*
 * Maps pages in advance. Fails for pages that are unmapped or read-only, and before Linux 5.14; they are then
 * mapped on first use.
 */
static void populate(const struct forking *forking)
{
    for (size_t index = 0; index < forking->run_count; index++) {
        const struct run *run = &forking->runs[index];
        madvise(run->start, run->size, run->is_written ? POPULATE_WRITE : POPULATE_READ);
    }
}

/*
 * Prepares the user's process, from the fork until its sandbox exists. The interpreter's signal settings are
 * the defaults.
 */
static void become_user(const struct forking *forking, int output, int listener, int orders)
{
    int owner, nothing;
    restart_rseq();
    prctl(PR_SET_NAME, "rookery: worker");
    /* The native program has made the sandbox. No message means that it has failed. */
    if (receive_with(orders, &owner, sizeof owner, &nothing, 1) != 1)
        _exit(0);
    if (owner >= 0)
        enter_limits(orders, (unsigned)owner);
    setsid();
    umask(022);
    arrange((int[KEPT]){nothing, output, output, listener, orders});
    bool is_alone = drop_privileges(forking->drops_capabilities, forking->has_no_new_privileges);
    if (!is_alone || (forking->filter_size > 0 && !filter_calls(forking->filter, forking->filter_size)))
        _exit(1);
    populate(forking);
}

/* The first process */

/* Executes the native program, which makes the sandbox (`src/making.c`). */
_Noreturn static void become_program(const struct forking *forking, const struct order *order, const int descriptors[4], pid_t user)
{
    const int passed[] = {order->teller, order->tie, order->words, descriptors[0], descriptors[1], descriptors[2], descriptors[3]};
    snprintf(told, sizeof told,
             "{\"name\":\"%s\",\"network\":%d,\"user\":%d,\"program\":%d,\"control\":%d,\"teller\":%d,\"networkTie\":%d,"
             "\"networkWords\":%d,\"orders\":%d,\"output\":%d,\"runtimeListener\":%d,\"outside\":%d}",
             order->name, (int)order->network, (int)user, forking->program, order->control, order->teller, order->tie, order->words,
             descriptors[0], descriptors[1], descriptors[2], descriptors[3]);
    for (size_t index = 0; index < sizeof passed / sizeof *passed; index++)
        keep_over_exec(passed[index]);
    execute(forking, order);
    report_failure(order, "", "the native program cannot be executed");
    kill(user, SIGKILL);
    _exit(1);
}

/* Returns only in the user's process. */
static void become_worker(const struct forking *forking, const struct order *order)
{
    int orders[2], output[2], listener, outside = -1;
    /* A netlink socket of the network to which the new one is linked. */
    if (order->network == OWN_NETWORK && order->teller < 0)
        outside = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);
    enter_groups(forking, order);
    if (forking->has_user_namespace)
        enter_user_namespace(forking, order);
    enter_namespaces(forking, order);
    if (forking->makes_pid_namespace_inside) {
        /* The child is the first process of the namespace. This process has no further task. */
        pid_t first = vfork();
        if (first < 0)
            fail(forking, order, "pid", "its first process cannot be made");
        if (first > 0)
            _exit(0);
    }
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || pipe2(output, O_CLOEXEC) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, orders) < 0)
        fail(forking, order, "", "its sockets cannot be made");
    pid_t user = fork();
    if (user < 0)
        fail(forking, order, "", "the user's process cannot be made");
    if (user == 0) {
        close(order->control);
        close(orders[0]);
        become_user(forking, output[1], listener, orders[1]);
        return;
    }
    close(output[1]);
    become_program(forking, order, (int[4]){orders[0], output[0], listener, outside}, user);
}

/*
 * Forks the first process with vfork: it shares this memory until it executes the program. So a worker costs
 * one copy of the interpreter, that of the user's process. Must not change memory that is used later.
 */
__attribute__((noinline)) static int vfork_worker(const struct forking *forking, const struct order *order)
{
    volatile pid_t first = vfork();
    if (first == 0)
        become_worker(forking, order);
    return first;
}

int fork_worker(const struct forking *forking, const struct order *order)
{
    sigset_t every, usual;
    int own = forking->own_pid_namespace;
    if (PyOS_BeforeFork)
        PyOS_BeforeFork();
    sigfillset(&every);
    sigprocmask(SIG_BLOCK, &every, &usual);
    int pid = own >= 0 && unshare(CLONE_NEWPID) < 0 ? NOT_FORKED : vfork_worker(forking, order);
    if (pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (PyOS_AfterFork_Child)
            PyOS_AfterFork_Child();
        else if (PyOS_AfterFork)
            PyOS_AfterFork();
        return 0;
    }
    if (own >= 0 && setns(own, CLONE_NEWPID) < 0) {
        int number = errno;
        if (pid > 0 && kill(pid, SIGKILL) == 0)
            waitpid(pid, NULL, 0);
        errno = number;
        pid = ASTRAY;
    }
    sigprocmask(SIG_SETMASK, &usual, NULL);
    if (PyOS_AfterFork_Parent)
        PyOS_AfterFork_Parent();
    return pid;
}

/*
 * Reports ended children. Returns false if the socket buffer is full: waiting here could deadlock with the
 * peer.
 */
static bool report_ended_children(int connection)
{
    for (;;) {
        siginfo_t about = {0};
        if (waitid(P_ALL, 0, &about, WEXITED | WNOHANG | WNOWAIT) < 0 || about.si_pid == 0)
            return true;
        int pid = about.si_pid;
        if (send(connection, &pid, sizeof pid, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EAGAIN)
            return false;
        waitpid(pid, NULL, 0);
    }
}

int serve_forks(const struct forking *forking, int connection)
{
    sigset_t children;
    struct signalfd_siginfo drained;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    struct pollfd waits[] = {{connection, POLLIN, 0}, {signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK), POLLIN, 0}};
    for (;;) {
        poll(waits, 2, -1);
        while (read(waits[1].fd, &drained, sizeof drained) > 0)
            ;
        waits[0].events = report_ended_children(connection) ? POLLIN : POLLIN | POLLOUT;
        /* The peer has closed the connection, so pending orders are void. */
        if (waits[0].revents & (POLLHUP | POLLERR))
            return 1;
        if (!(waits[0].revents & POLLIN))
            continue;
        struct order order;
        int given[MOST_PASSED], *places[] = {&order.control, &order.teller, &order.tie, &order.words};
        int count = receive_with(connection, &order, sizeof order, given, MOST_PASSED);
        if (count < 1)
            return 1;
        order.name[LONGEST_NAME - 1] = '\0';
        for (int index = 0, next = 0; index < MOST_PASSED; index++)
            *places[index] = *places[index] >= 0 && next < count ? given[next++] : -1;
        int pid = fork_worker(forking, &order);
        if (pid == 0)
            return 0;
        if (pid < 0)
            report_failure(&order, "", "a worker cannot be forked");
        for (int index = 0; index < count; index++)
            close(given[index]);
        if (pid == ASTRAY)
            return 1;
    }
}
