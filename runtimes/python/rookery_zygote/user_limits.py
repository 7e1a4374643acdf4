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
    A user namespace that a process makes for its child. The child cannot make it: whoever writes the maps must be outside, and so must
    whoever still mounts. Make this before the fork.
    """

    def __init__(self):
        self._taker, self._maker = socket.socketpair()
        self._about_maker = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def make(self, child):
        """In the parent, which has done its part afterwards: it stays in the namespace until `child` has taken it or has ended."""
        self._taker.close()
        try:
            # The pid is the child's alone for as long as it lives, and nothing of the sandbox outlives it.
            owner = _owner(child)
            os.setresuid(-1, owner, -1)
            # The ids took these from what is effective. Some machines let only those with rights make one.
            syscalls.keep_capabilities(range(64))
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            namespace = os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            self._maker.sendmsg([b"%d" % owner], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", namespace))])
            self._maker.recv(1)
        except OSError as error:
            try:
                self._maker.send((error.strerror or str(error)).encode()[:_LONGEST_REASON])
            except OSError:
                # The child has gone first.
                pass

    def take(self):
        """In the child: the Namespace. Fails with OSError."""
        self._maker.close()
        try:
            data, ancillary, _flags, _address = self._taker.recvmsg(_LONGEST_REASON, socket.CMSG_SPACE(4))
            if not ancillary:
                raise OSError(data.decode("utf-8", "replace") or "its maker has ended")
            (namespace,) = struct.unpack("i", ancillary[0][2][:4])
            try:
                for name in ("uid_map", "gid_map"):
                    self._write_map(name)
            except OSError:
                os.close(namespace)
                raise
            return Namespace(namespace, int(data))
        finally:
            self._taker.close()
            os.close(self._about_maker)

    def _write_map(self, name):
        descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._about_maker)
        try:
            os.write(descriptor, _EVERY_ID)
        finally:
            os.close(descriptor)


class Namespace:
    def __init__(self, descriptor, owner):
        self._descriptor = descriptor
        self._owner = owner

    def enter(self):
        """Moves this process, which is root, into it: with all capabilities there, and none on the host. Fails with OSError."""
        # What its owner may without any right on the host.
        os.setresuid(-1, self._owner, -1)
        syscalls.setns(self._descriptor, syscalls.CLONE_NEWUSER)
        os.setresuid(0, 0, 0)
        os.close(self._descriptor)


def _owner(pid):
    """A uid for as long as `pid` lives."""
    return _FIRST_OWNER + os.stat("/proc/self/ns/pid").st_ino % _PID_NAMESPACES * _MOST_PIDS + pid % _MOST_PIDS
