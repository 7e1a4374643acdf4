"""The system call filter of a sandbox. Allows everything except calls that affect the kernel or other
processes.

Containers get the same rules from Docker (`container_filter`, made from the tables here).
"""

import ctypes
import struct

from . import syscalls

_EPERM = 1
_ENOSYS = 38
_EAFNOSUPPORT = 97
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4
_TIOCSTI = 0x5412
_TIOCLINUX = 0x541C
#: All CLONE_NEW* flags.
NAMESPACES = 0x7E020080
#: The same without CLONE_NEWTIME, whose bit belongs to the exit signal in clone(2).
CLONE_NAMESPACES = 0x7E020000
#: Allowed address families: AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
FAMILIES = (1, 2, 10, 16)

# Denied with EPERM: (name, x86_64, aarch64). None if the architecture lacks the call.
DENIED = (
    ("acct", 163, 89),
    ("add_key", 248, 217),
    ("bpf", 321, 280),
    ("chroot", 161, 51),
    ("clock_settime", 227, 112),
    ("create_module", 174, None),
    ("delete_module", 176, 106),
    ("fanotify_init", 300, 262),
    ("finit_module", 313, 273),
    ("fsconfig", 431, 431),
    ("fsmount", 432, 432),
    ("fsopen", 430, 430),
    ("fspick", 433, 433),
    ("get_kernel_syms", 177, None),
    ("get_mempolicy", 239, 236),
    ("init_module", 175, 105),
    ("ioperm", 173, None),
    ("iopl", 172, None),
    ("kcmp", 312, 272),
    ("kexec_file_load", 320, 294),
    ("kexec_load", 246, 104),
    ("keyctl", 250, 219),
    ("listmount", 458, 458),
    ("lookup_dcookie", 212, 18),
    ("lsm_set_self_attr", 460, 460),
    ("mbind", 237, 235),
    ("migrate_pages", 256, 238),
    ("mount", 165, 40),
    ("mount_setattr", 442, 442),
    ("move_mount", 429, 429),
    ("move_pages", 279, 239),
    ("nfsservctl", 180, 42),
    ("open_by_handle_at", 304, 265),
    ("open_tree", 428, 428),
    ("open_tree_attr", 467, 467),
    ("perf_event_open", 298, 241),
    ("pidfd_getfd", 438, 438),
    ("pivot_root", 155, 41),
    ("process_madvise", 440, 440),
    ("process_mrelease", 448, 448),
    ("process_vm_readv", 310, 270),
    ("process_vm_writev", 311, 271),
    ("ptrace", 101, 117),
    ("query_module", 178, None),
    ("quotactl", 179, 60),
    ("quotactl_fd", 443, 443),
    ("reboot", 169, 142),
    ("request_key", 249, 218),
    ("set_mempolicy", 238, 237),
    ("set_mempolicy_home_node", 450, 450),
    ("setdomainname", 171, 162),
    ("sethostname", 170, 161),
    ("setns", 308, 268),
    ("settimeofday", 164, 170),
    ("statmount", 457, 457),
    ("swapoff", 168, 225),
    ("swapon", 167, 224),
    ("_sysctl", 156, None),
    ("sysfs", 139, None),
    ("syslog", 103, 116),
    ("umount2", 166, 39),
    ("uselib", 134, None),
    ("userfaultfd", 323, 282),
    ("ustat", 136, None),
    ("vhangup", 153, 58),
)
# Denied with ENOSYS, so that libraries use their fallback.
ABSENT = (
    ("clone3", 435, 435),
    # The mode is behind a pointer, which a filter cannot read.
    ("openat2", 437, 437),
    ("io_uring_setup", 425, 425),
    ("io_uring_enter", 426, 426),
    ("io_uring_register", 427, 427),
)
#: S_ISUID and S_ISGID. On the host such a file would run with the rights of its owner: of root, if the code
#: runs as root.
SET_IDS = 0o6000
#: O_CREAT, and the bit of O_TMPFILE that O_DIRECTORY lacks. The mode counts only with one of them.
CREATES = 0o20000100
# Denied with EPERM when the mode has these bits: (name, x86_64, aarch64, index of the mode argument, index of
# the flags argument or None). Directories and sockets cannot have these bits, and a file loses them when it
# is written to.
MODES = (
    ("openat", 257, 56, 3, 2),
    ("open", 2, None, 2, 1),
    ("chmod", 90, None, 1, None),
    ("creat", 85, None, 1, None),
    ("fchmod", 91, 52, 1, None),
    ("fchmodat", 268, 53, 2, None),
    ("fchmodat2", 452, 452, 2, None),
    ("mknod", 133, None, 1, None),
    ("mknodat", 259, 33, 2, None),
)
#: A query, and flags that only change the machine's name for programs. None of them weakens memory
#: protection.
PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
# Calls that are checked by argument.
_PERSONALITY = {"x86_64": 135, "aarch64": 92}
_CLONE = {"x86_64": 56, "aarch64": 220}
_UNSHARE = {"x86_64": 272, "aarch64": 97}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_SOCKETPAIR = {"x86_64": 53, "aarch64": 199}
_IOCTL = {"x86_64": 16, "aarch64": 29}
_PRLIMIT = {"x86_64": 302, "aarch64": 261}
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

#: Length of a row of comparisons. A smaller number makes more instructions, which the kernel has to
#: translate.
_MOST_IN_A_ROW = 3

#: Number of instructions that a comparison can skip.
_LONGEST_SKIP = 255

_LOAD = 0x20
_JUMP = 0x05
_JUMP_EQUAL = 0x15
_JUMP_GREATER_EQUAL = 0x35
_JUMP_SET = 0x45
_RETURN = 0x06
_NUMBER_AT = 0
_ARCH_AT = 4


def _argument_at(index):
    return 16 + 8 * index


def _instruction(code, true, false, value):
    return struct.pack("=HBBI", code, true, false, value)


def _mode_check(mode_index, flags_index, denied, allow):
    check = []
    if flags_index is not None:
        check = [_instruction(_LOAD, 0, 0, _argument_at(flags_index)), _instruction(_JUMP_SET, 0, 3, CREATES)]
    return check + [
        _instruction(_LOAD, 0, 0, _argument_at(mode_index)),
        _instruction(_JUMP_SET, 0, 1, SET_IDS),
        denied,
        allow,
    ]


def _one_of(values, denied, allow):
    """Returns instructions that allow a call if its first argument is one of these values."""
    checks = [_instruction(_JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [_instruction(_LOAD, 0, 0, _argument_at(0))] + checks + [denied, allow]


def _rules(machine, allow, passed=()):
    """
    Returns the restricted calls: number of the call → the instructions that decide about it, ending with a
    return.
    """
    column = 1 if machine == "x86_64" else 2
    eperm = _instruction(_RETURN, 0, 0, _ERRNO | _EPERM)
    enosys = _instruction(_RETURN, 0, 0, _ERRNO | _ENOSYS)
    unsupported = _instruction(_RETURN, 0, 0, _ERRNO | _EAFNOSUPPORT)
    rules = {entry[column]: [eperm] for entry in DENIED if entry[0] not in passed}
    rules.update((entry[column], [enosys]) for entry in ABSENT)
    rules.update((entry[column], _mode_check(entry[3], entry[4], eperm, allow)) for entry in MODES)
    rules.pop(None, None)
    for call, flags in ((_CLONE, CLONE_NAMESPACES), (_UNSHARE, NAMESPACES)):
        rules[call[machine]] = [
            _instruction(_LOAD, 0, 0, _argument_at(0)),
            _instruction(_JUMP_SET, 0, 1, flags),
            eperm,
            allow,
        ]
    rules[_IOCTL[machine]] = [
        _instruction(_LOAD, 0, 0, _argument_at(1)),
        _instruction(_JUMP_EQUAL, 1, 0, _TIOCSTI),
        _instruction(_JUMP_EQUAL, 0, 1, _TIOCLINUX),
        eperm,
        allow,
    ]
    # Denies new limits (third argument, a pointer) for other processes (first argument not 0): code with the
    # same uid could end init.
    rules[_PRLIMIT[machine]] = [
        _instruction(_LOAD, 0, 0, _argument_at(0)),
        _instruction(_JUMP_EQUAL, 5, 0, 0),
        _instruction(_LOAD, 0, 0, _argument_at(2)),
        _instruction(_JUMP_EQUAL, 0, 2, 0),
        _instruction(_LOAD, 0, 0, _argument_at(2) + 4),
        _instruction(_JUMP_EQUAL, 1, 0, 0),
        eperm,
        allow,
    ]
    rules[_PERSONALITY[machine]] = _one_of(PERSONALITIES, eperm, allow)
    for call in (_SOCKET, _SOCKETPAIR):
        rules[call[machine]] = _one_of(FAMILIES, unsupported, allow)
    return rules


def _ranges(rules):
    """Returns sorted `(first, last, instructions)`. Merges neighbours with the same single instruction."""
    ranges = []
    for number, code in sorted(rules.items()):
        if ranges and len(code) == 1 and ranges[-1][1:] == (number - 1, code):
            ranges[-1] = (ranges[-1][0], number, code)
        else:
            ranges.append((number, number, code))
    return ranges


def _decide(ranges, otherwise):
    """
    Returns instructions that decide about the loaded number of a call, by binary search.

    The kernel runs the filter for every number when a process installs it, to remember the calls that are
    always allowed. Later it runs the filter for each of the other calls.
    """
    if len(ranges) > _MOST_IN_A_ROW:
        middle = len(ranges) // 2
        below, above = _decide(ranges[:middle], otherwise), _decide(ranges[middle:], otherwise)
        limit = ranges[middle][0]
        over = [_instruction(_JUMP_GREATER_EQUAL, min(len(below), _LONGEST_SKIP), 0, limit)]
        if len(below) > _LONGEST_SKIP:
            over = [_instruction(_JUMP_GREATER_EQUAL, 0, 1, limit), _instruction(_JUMP, 0, 0, len(below))]
        return over + below + above
    decided = []
    for first, last, code in ranges:
        if first == last:
            decided.append(_instruction(_JUMP_EQUAL, 0, len(code), first))
        else:
            decided.append(_instruction(_JUMP_GREATER_EQUAL, 0, len(code) + 1, first))
            decided.append(_instruction(_JUMP_GREATER_EQUAL, len(code), 0, last + 1))
        decided += code
    return decided + [otherwise]


def program(machine, passed=()):
    """
    Returns the filter as BPF bytes, or None for an architecture that is not in the tables.

    `passed` are names of denied calls that pass.
    """
    if machine not in _AUDIT_ARCH:
        return None
    allow = _instruction(_RETURN, 0, 0, _ALLOW)
    code = [
        _instruction(_LOAD, 0, 0, _ARCH_AT),
        _instruction(_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        # 32-bit programs use other numbers: none of their calls passes.
        _instruction(_RETURN, 0, 0, _ERRNO | _EPERM),
        _instruction(_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":
        # Denies the x32 variants of all calls.
        code += [
            _instruction(_JUMP_GREATER_EQUAL, 0, 1, 0x40000000),
            _instruction(_RETURN, 0, 0, _ERRNO | _ENOSYS),
        ]
    return b"".join(code + _decide(_ranges(_rules(machine, allow, passed)), allow))


#: The filter for this machine. Made once, because every worker installs it.
OWN = program(syscalls.MACHINE)
#: The filter of an init whose children enter the user namespace of the sandbox's accounts. Each of them
#: refuses setns by another filter, before it becomes an account (`runtimes/native/src/account.c`).
OF_ACCOUNTS = program(syscalls.MACHINE, ("setns",))
_HELD = None if OWN is None else ctypes.create_string_buffer(OWN, len(OWN))
_REQUEST = None if OWN is None else struct.pack("@HP", len(OWN) // 8, ctypes.addressof(_HELD))


def install():
    """
    Installs the filter for this process and its future children.

    Needs no_new_privs or CAP_SYS_ADMIN. Raises OSError.
    """
    if _REQUEST is None:
        raise OSError(_ENOSYS, "no system call filter is known for %s" % syscalls.MACHINE)
    result = syscalls.LIBC.syscall(
        ctypes.c_long(syscalls.SYS_SECCOMP),
        ctypes.c_uint(_SECCOMP_SET_MODE_FILTER),
        ctypes.c_uint(_SECCOMP_FILTER_FLAG_SPEC_ALLOW),
        _REQUEST,
    )
    if result != 0:
        # Kernels before 4.17 do not know the flag.
        address = ctypes.create_string_buffer(_REQUEST, len(_REQUEST))
        result = syscalls.LIBC.prctl(
            ctypes.c_int(syscalls.PR_SET_SECCOMP), ctypes.c_ulong(2), ctypes.c_ulong(ctypes.addressof(address)), 0, 0
        )
        if result != 0:
            raise OSError(ctypes.get_errno(), "the system call filter was refused")
