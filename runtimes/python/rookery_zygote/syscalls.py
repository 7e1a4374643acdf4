"""System calls that Python lacks, through ctypes. Each raises OSError on failure, except `set_name`."""

import ctypes
import errno
import os
import platform
import struct

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

_LINUX_CAPABILITY_VERSION_3 = 0x20080522

MACHINE = platform.machine()
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}.get(MACHINE)

LIBC = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))
    return result


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
    """Sets the kernel's short name of this process (15 bytes)."""
    LIBC.prctl(ctypes.c_int(PR_SET_NAME), ctypes.c_char_p(os.fsencode(name)[:15]), 0, 0, 0)


# Made once, to save time in each create.
_DROP, _NOTHING = ctypes.c_int(PR_CAPBSET_DROP), ctypes.c_ulong(0)
_CAPABILITY_HEADER = ctypes.create_string_buffer(struct.pack("=II", _LINUX_CAPABILITY_VERSION_3, 0), 8)
_CAPABILITY_WORDS = ctypes.create_string_buffer(24)
_CAPABILITIES = [ctypes.c_ulong(number) for number in range(64)]


def drop_bounding_capabilities():
    """Clears the bounding and ambient sets, so that no later exec restores a capability."""
    LIBC.prctl(ctypes.c_int(PR_CAP_AMBIENT), ctypes.c_ulong(PR_CAP_AMBIENT_CLEAR_ALL), ctypes.c_ulong(0), 0, 0)
    for capability in _CAPABILITIES:
        if LIBC.prctl(_DROP, capability, _NOTHING, _NOTHING, _NOTHING) < 0:
            # The kernel has no capability with this number or above.
            if capability.value and ctypes.get_errno() == errno.EINVAL:
                return
            _check(-1, "drop capability %d" % capability.value)


def keep_capabilities(capabilities):
    """
    Reduces effective and permitted capabilities to these, if they are permitted.

    Executed programs have none.
    """
    kept = permitted_capabilities() & _set_of(capabilities)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    words = struct.pack("=6I", low, low, 0, high, high, 0)
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
