"""The system calls that Python does not have, through ctypes. Each fails with OSError."""

import ctypes
import errno
import os
import platform
import struct

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_SLAVE = 0x80000
MNT_DETACH = 2

CLONE_NEWNS = 0x20000
CLONE_NEWUTS = 0x4000000
CLONE_NEWIPC = 0x8000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_SECCOMP = 22
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

CAP_KILL = 5
CAP_SETGID = 6
CAP_SETUID = 7

_MOUNT_ATTR_RDONLY = 0x1
_MOUNT_ATTR_NOSUID = 0x2
_MOUNT_ATTR_NODEV = 0x4
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_SYS_MOUNT_SETATTR = 442
_LINUX_CAPABILITY_VERSION_3 = 0x20080522

MACHINE = platform.machine()
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(MACHINE)
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}.get(MACHINE)

LIBC = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))
    return result


def _bytes(text):
    return None if text is None else os.fsencode(text)


def mount(source, target, kind=None, flags=0, data=None):
    _check(
        LIBC.mount(_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(data)),
        "mount %s" % target,
    )


def umount_detached(target):
    _check(LIBC.umount2(_bytes(target), MNT_DETACH), "umount %s" % target)


def bind(source, target):
    """`source`, with everything that is mounted below it, also at `target`."""
    mount(source, target, None, MS_BIND | MS_REC)


def restrict_mount(target, readonly):
    """Makes the mount at `target` and all below it nosuid, nodev and, when asked, read-only."""
    attributes = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | (_MOUNT_ATTR_RDONLY if readonly else 0)
    request = struct.pack("=QQQQ", attributes, 0, 0, 0)
    result = LIBC.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(-100),
        _bytes(target),
        ctypes.c_uint(_AT_RECURSIVE),
        request,
        ctypes.c_size_t(len(request)),
    )
    if result == 0:
        return
    # Kernels before 5.12 do not have the call: then mount by mount, keeping the flags that each one has.
    for path in _mounts_below(os.path.realpath(target)):
        flags = os.statvfs(path).f_flag & (MS_NOEXEC | MS_NOSUID | MS_NODEV | MS_RDONLY)
        flags |= MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV | (MS_RDONLY if readonly else 0)
        mount(None, path, None, flags)


def _mounts_below(path):
    found = []
    with open("/proc/self/mountinfo", "rb") as table:
        for line in table:
            point = os.fsdecode(line.split()[4].decode("unicode_escape").encode("latin-1"))
            if point == path or point.startswith(path.rstrip("/") + "/"):
                found.append(point)
    return found or [path]


def pivot_root(new, old):
    if _SYS_PIVOT_ROOT is None:
        raise OSError(38, "pivot_root: not known for %s" % MACHINE)
    _check(LIBC.syscall(ctypes.c_long(_SYS_PIVOT_ROOT), _bytes(new), _bytes(old)), "pivot_root")


def unshare(flags):
    _check(LIBC.unshare(ctypes.c_int(flags)), "unshare")


def setns(descriptor, kind=0):
    _check(LIBC.setns(ctypes.c_int(descriptor), ctypes.c_int(kind)), "setns")


def prctl(option, value=0):
    return _check(
        LIBC.prctl(ctypes.c_int(option), ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)),
        "prctl %d" % option,
    )


def set_name(name):
    """The kernel's short name of this process (15 bytes)."""
    LIBC.prctl(ctypes.c_int(PR_SET_NAME), ctypes.c_char_p(os.fsencode(name)[:15]), 0, 0, 0)


# Made once: a create waits for it.
_DROP, _NOTHING = ctypes.c_int(PR_CAPBSET_DROP), ctypes.c_ulong(0)
_CAPABILITY_HEADER = ctypes.create_string_buffer(struct.pack("=II", _LINUX_CAPABILITY_VERSION_3, 0), 8)
_CAPABILITY_WORDS = ctypes.create_string_buffer(24)
_CAPABILITIES = [ctypes.c_ulong(number) for number in range(64)]


def drop_bounding_capabilities():
    """From here on no exec can give a capability back."""
    LIBC.prctl(ctypes.c_int(PR_CAP_AMBIENT), ctypes.c_ulong(PR_CAP_AMBIENT_CLEAR_ALL), ctypes.c_ulong(0), 0, 0)
    for capability in _CAPABILITIES:
        if LIBC.prctl(_DROP, capability, _NOTHING, _NOTHING, _NOTHING) < 0:
            # The kernel has no more than those before.
            if capability.value and ctypes.get_errno() == errno.EINVAL:
                return
            _check(-1, "drop capability %d" % capability.value)


def keep_capabilities(capabilities, inherited=()):
    """Effective and permitted become these, as far as they were permitted; a program of root's that is executed has those that are inherited."""
    held = permitted_capabilities()
    kept, passed_on = held & _set_of(capabilities), held & _set_of(inherited)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    words = struct.pack("=6I", low, low, passed_on & 0xFFFFFFFF, high, high, passed_on >> 32)
    _check(LIBC.capset(_CAPABILITY_HEADER, words), "capset")


def _set_of(capabilities):
    found = 0
    for capability in capabilities:
        found |= 1 << capability
    return found


def permitted_capabilities():
    _check(LIBC.capget(_CAPABILITY_HEADER, _CAPABILITY_WORDS), "capget")
    words = struct.unpack("=6I", _CAPABILITY_WORDS)
    return words[1] | words[4] << 32
