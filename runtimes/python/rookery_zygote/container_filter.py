"""The system call filter of containers: the rules of `seccomp` as a profile for Docker.

`npm run generate` writes the profile beside this file.

The profile lists the allowed calls. In a profile of denied calls, a call unknown to the machine's libseccomp
would pass: fchmodat2, for example, in a version from before 2023. Here every unknown call fails. Calls of
other architectures fail, since there is no rule for them.

Two things differ from `seccomp`. Every ioctl passes, because terminals of containers lead nowhere else. Other
address families fail with EPERM.
"""

import json

from . import seccomp

_ENOSYS = 38
_LOW_HALF = 0xFFFFFFFF
# All calls of x86_64 and aarch64 as of Linux 6.17, except those in the tables of `seccomp` and those that no
# kernel has any more.
_ALLOWED = """
    accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget capset chdir chown clock_adjtime clock_getres
    clock_gettime clock_nanosleep close close_range connect copy_file_range dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
    epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate
    fanotify_mark fchdir fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs
    fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd
    getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority
    getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup
    io_submit ioctl ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr
    link linkat listen listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lsm_get_self_attr lsm_list_modules lstat
    madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir mkdirat mlock mlock2 mlockall mmap modify_ldt
    mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync
    munlock munlockall munmap name_to_handle_at nanosleep newfstatat pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc
    pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 pselect6 pwrite64 pwritev pwritev2 read readahead readlink
    readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr removexattrat rename renameat renameat2
    restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
    rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
    sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp
    select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address
    setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid
    setsockopt setuid setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice stat statfs
    statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun
    timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask uname unlink unlinkat
    utime utimensat utimes vfork vmsplice wait4 waitid write writev
""".split()


def _masked(index, mask, value):
    """Returns Docker's condition that the bits of an argument under the mask equal the value."""
    return {"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value}


def _allow(names, *conditions):
    """
    Returns a rule that allows a call if all conditions hold.

    Of several rules for a call one has to match.
    """
    rule = {"names": names, "action": "SCMP_ACT_ALLOW"}
    if conditions:
        rule["args"] = list(conditions)
    return rule


def profile():
    """
    Returns the profile for x86_64 and aarch64.

    On other architectures the arguments have other positions.
    """
    rules = [_allow(_ALLOWED)]
    for name, _, _, mode_index, flags_index in seccomp.MODES:
        rules.append(_allow([name], _masked(mode_index, seccomp.SET_IDS, 0)))
        if flags_index is not None:
            rules.append(_allow([name], _masked(flags_index, seccomp.CREATES, 0)))
    rules.append(_allow(["clone"], _masked(0, seccomp.CLONE_NAMESPACES, 0)))
    rules.append(_allow(["unshare"], _masked(0, seccomp.NAMESPACES, 0)))
    for name, values in (
        ("personality", seccomp.PERSONALITIES),
        ("socket", seccomp.FAMILIES),
        ("socketpair", seccomp.FAMILIES),
    ):
        rules += [_allow([name], _masked(0, _LOW_HALF, value)) for value in values]
    # Allows setting one's own limits, and reading those of others.
    rules.append(_allow(["prlimit64"], _masked(0, _LOW_HALF, 0)))
    rules.append(_allow(["prlimit64"], {"index": 2, "op": "SCMP_CMP_EQ", "value": 0}))
    absent = [name for name, _, _ in seccomp.ABSENT]
    rules.append({"names": absent, "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS})
    # The default errno is EPERM.
    return {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules}


if __name__ == "__main__":
    print(json.dumps(profile(), indent=2))
