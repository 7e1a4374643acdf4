"""The limits that the kernel counts by user (inotify instances and watches, queued signals, bytes of message queues): for a service that is
root, each sandbox has its own.

What a process in a user namespace takes, the kernel counts for the owner of that namespace too. So each sandbox is in one whose owner is a
uid that nobody else has. Every id is mapped to itself: files, signals and sockets are what they are without it.
"""

import os
import socket
import struct

from . import syscalls

#: No distribution gives these uids to anybody.
_FIRST_OWNER = 0x70000000
_MOST_PIDS = 1 << 22
#: Services in containers count their processes each from 1.
_PID_NAMESPACES = 32
_EVERY_ID = b"0 0 4294967295"
_LONGEST_REASON = 256


class Offer:
    """
    A user namespace that a child makes for itself and its parent. The parent cannot make it: a process that writes the maps must be
    outside, and so must one that still mounts. Make this before the fork.
    """

    def __init__(self, pid):
        """`pid`: of a process that ends after all that are in the namespace."""
        self._owner = _owner(pid)
        self._taker, self._maker = socket.socketpair()

    def make(self):
        """In the child, which is root: moves it there, with all capabilities there and none on the host. Fails with OSError."""
        self._taker.close()
        with self._maker:
            try:
                about = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                os.setresuid(-1, self._owner, -1)
                # The ids took these from what is effective. Some machines let only those with rights make one.
                syscalls.keep_capabilities(range(64))
                syscalls.unshare(syscalls.CLONE_NEWUSER)
                namespace = os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)
                self._maker.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("ii", namespace, about))])
            except OSError as error:
                self._maker.send((error.strerror or str(error)).encode()[:_LONGEST_REASON])
                raise
            if not self._maker.recv(1):
                raise OSError("its parent could not map the ids")
            os.setresuid(0, 0, 0)
            os.close(namespace)
            os.close(about)

    def take(self):
        """In the parent, which is outside: the Namespace. Fails with OSError."""
        self._maker.close()
        with self._taker:
            data, ancillary, _flags, _address = self._taker.recvmsg(_LONGEST_REASON, socket.CMSG_SPACE(8))
            if not ancillary:
                raise OSError(data.decode("utf-8", "replace") or "its maker has ended")
            namespace, about = struct.unpack("ii", ancillary[0][2][:8])
            try:
                for name in ("uid_map", "gid_map"):
                    _write_map(name, about)
                self._taker.send(b".")
            except OSError:
                os.close(namespace)
                raise
            finally:
                os.close(about)
            return Namespace(namespace, self._owner)


def _write_map(name, about):
    descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=about)
    try:
        os.write(descriptor, _EVERY_ID)
    finally:
        os.close(descriptor)


class Namespace:
    def __init__(self, descriptor, owner):
        self.descriptor = descriptor
        self.owner = owner

    def enter(self):
        """Moves this process, which is root, into it: with all capabilities there, and none on the host. Fails with OSError."""
        # What its owner may without any right on the host.
        os.setresuid(-1, self.owner, -1)
        syscalls.setns(self.descriptor, syscalls.CLONE_NEWUSER)
        os.setresuid(0, 0, 0)
        os.close(self.descriptor)


def _owner(pid):
    """A uid for as long as `pid` lives."""
    return _FIRST_OWNER + os.stat("/proc/self/ns/pid").st_ino % _PID_NAMESPACES * _MOST_PIDS + pid % _MOST_PIDS
