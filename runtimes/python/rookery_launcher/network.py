"""A network of its own: loopback and nothing else."""

import fcntl
import socket
import struct

from . import syscalls

_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


def isolate():
    """Moves this process into a new network namespace whose loopback is up. Fails with OSError."""
    syscalls.unshare(syscalls.CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anything:
        fcntl.ioctl(anything.fileno(), _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
