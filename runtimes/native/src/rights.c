#include "rights.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel.h"

enum {
    /* The limits of queued signals and timers, and of bytes in POSIX message queues. */
    MOST_PENDING_SIGNALS = 1024,
    MOST_QUEUE_BYTES = 409600,
};

bool keep_rights_of_init(const struct sandbox *sandbox)
{
    return !sandbox->has_capabilities || keep_capabilities(CAPABILITY(CAP_KILL) | CAPABILITY(CAP_SETGID) | CAPABILITY(CAP_SETUID));
}

bool give_up_privileges(const struct sandbox *sandbox, bool has_no_new_privs)
{
    return drop_privileges(sandbox->has_capabilities, has_no_new_privs);
}

bool enter_user_namespace(uid_t uid, gid_t gid)
{
    char users[32], groups[32];
    snprintf(users, sizeof users, "%u 0 1", (unsigned)uid);
    snprintf(groups, sizeof groups, "%u 0 1", (unsigned)gid);
    if (unshare(CLONE_NEWUSER) < 0)
        return false;
    /* The maps belong to the user as long as the process does. */
    prctl(PR_SET_DUMPABLE, 1);
    bool is_good = write_to("/proc/self/uid_map", users);
    /* A nested namespace has inherited the `deny` of its parent. */
    if (is_good)
        (void)!write_to("/proc/self/setgroups", "deny");
    is_good = is_good && write_to("/proc/self/gid_map", groups);
    int number = errno;
    forbid_inspection();
    errno = number;
    return is_good;
}

bool enter_namespace_of(uid_t owner, int namespace)
{
    /*
     * Its owner needs no rights on the host for this. Uses system calls, because libc would synchronize other
     * threads.
     */
    return syscall(SYS_setresuid, -1, owner, -1) == 0 && setns(namespace, CLONE_NEWUSER) == 0 && syscall(SYS_setresuid, 0, 0, 0) == 0;
}

/* Sets the soft and the hard limit, at most the current hard limit. */
static bool lower(int resource, double value)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) < 0)
        return false;
    rlim_t most = value < 0x1p62 ? (rlim_t)value : (rlim_t)1 << 62;
    if (limit.rlim_max == RLIM_INFINITY || most < limit.rlim_max)
        limit.rlim_max = most;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(resource, &limit) == 0;
}

bool limit_user(const struct sandbox *sandbox)
{
    /* The kernel counts signals and queues per user for the whole machine, so each sandbox gets a part. */
    if (!lower(RLIMIT_CORE, 0) || !lower(RLIMIT_NOFILE, sandbox->most_open_files) ||
        !lower(RLIMIT_SIGPENDING, MOST_PENDING_SIGNALS) || !lower(RLIMIT_MSGQUEUE, MOST_QUEUE_BYTES))
        return false;
    if (!sandbox->has_memory_group && !lower(RLIMIT_DATA, sandbox->memory_mb * 1024 * 1024))
        return false;
    /* Without a user namespace the kernel would count the processes of this user on the whole machine. */
    return sandbox->has_pids_group || !sandbox->has_user || lower(RLIMIT_NPROC, sandbox->most_processes);
}

bool become_user(const struct sandbox *sandbox)
{
    if (!limit_user(sandbox))
        return false;
    /* Uses system calls: this process has one thread, but libc would synchronize others. */
    if (sandbox->sets_ids && (syscall(SYS_setgroups, sandbox->group_count, sandbox->groups) < 0 ||
                              syscall(SYS_setresgid, sandbox->gid, sandbox->gid, sandbox->gid) < 0 ||
                              syscall(SYS_setresuid, sandbox->uid, sandbox->uid, sandbox->uid) < 0))
        return false;
    if (sandbox->has_capabilities && !keep_capabilities(0))
        return false;
    return sandbox->has_pid || prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
}

void forbid_inspection(void)
{
    prctl(PR_SET_DUMPABLE, 0);
}
