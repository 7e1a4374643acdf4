"""The directory of one sandbox on the host: sockets, log and what others must know to find, judge and remove it.

A worker makes it under its own name; becoming an instance is one rename, by the native program (`start.c`), which has its descriptors: they
outlive the host's root inside the sandbox.
"""

import json
import os
import socket

#: Of the runtime's socket, below the instance's directory. A directory of its own, because programs see it inside.
SOCKET_DIRECTORY = "sock"
SOCKET_NAME = "runtime.sock"
CONTROL_NAME = "init.sock"
#: More than any end takes.
_RESERVED_BYTES = 512
_RUNTIME_BACKLOG = 64
_CONTROL_BACKLOG = 64


class InstanceDirectory:
    def __init__(self, plan, name):
        self.workers = os.open(plan.workers, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.instances = os.open(plan.instances, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.mkdir(name, 0o700, dir_fd=self.workers)
        self.descriptor = _open_directory(name, self.workers)
        os.mkdir(SOCKET_DIRECTORY, 0o700, dir_fd=self.descriptor)
        self.sockets = _open_directory(SOCKET_DIRECTORY, self.descriptor)
        self.runtime_listener = _listen(self.sockets, SOCKET_NAME, _RUNTIME_BACKLOG)
        self.control_listener = _listen(self.descriptor, CONTROL_NAME, _CONTROL_BACKLOG)

    def write(self, name, content):
        """Writes a JSON file. Fails with OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=self.descriptor)
        try:
            os.write(descriptor, json.dumps(content).encode())
        finally:
            os.close(descriptor)

    def reserve(self, name):
        """Takes the room on the disk that the file will need: how a job has ended must be reported on a full one too. Fails with OSError."""
        descriptor = os.open(name + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self.descriptor)
        try:
            os.write(descriptor, b" " * _RESERVED_BYTES)
        finally:
            os.close(descriptor)


def _open_directory(name, parent):
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)


def _listen(directory, name, backlog):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Through the descriptor, so that the path is short enough for any data directory.
    listener.bind("/proc/self/fd/%d/%s" % (directory, name))
    listener.listen(backlog)
    return listener
