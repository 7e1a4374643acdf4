"""The directory of one sandbox on the host: sockets, log and what others must know to find, judge and remove it.

A worker makes it under its own name; becoming an instance is one rename. It is held by descriptors, which outlive the host's
root inside the sandbox.
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
        self._workers = os.open(plan.workers, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._instances = os.open(plan.instances, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._parent, self._name = self._workers, name
        os.mkdir(name, 0o700, dir_fd=self._parent)
        self.descriptor = _open_directory(name, self._parent)
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
        """Takes the room on the disk that `publish` will need: how a job has ended must be reported on a full one too. Fails with OSError."""
        descriptor = os.open(name + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self.descriptor)
        try:
            os.write(descriptor, b" " * _RESERVED_BYTES)
        finally:
            os.close(descriptor)

    def publish(self, name, content):
        """As `write` where somebody may be reading: they see all of it or nothing. Fails with OSError."""
        descriptor = os.open(name + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self.descriptor)
        try:
            # Over what was reserved; spaces behind JSON are JSON.
            os.write(descriptor, json.dumps(content).encode().ljust(_RESERVED_BYTES))
        finally:
            os.close(descriptor)
        os.rename(name + ".tmp", name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def adopt(self, instance_id):
        """From a worker's to this instance's. Fails with FileExistsError (or ENOTEMPTY) when there is one of that name."""
        os.rename(self._name, instance_id, src_dir_fd=self._parent, dst_dir_fd=self._instances)
        self._parent, self._name = self._instances, instance_id

    def give_sockets_to(self, uid, gid):
        """The user's program may put a socket of its own there."""
        os.fchown(self.sockets, uid, gid)
        os.chown(SOCKET_NAME, uid, gid, dir_fd=self.sockets)

    def leave_socket_to_program(self):
        """The runtime's socket is made by the program: whoever connects before finds nothing and tries again."""
        os.unlink(SOCKET_NAME, dir_fd=self.sockets)

    def remove(self):
        """
        Where the user's program has begun and has put directories beside its socket, all of it stays: the service finds the directory as
        that of a sandbox which has ended, with its groups, and removes both.
        """
        try:
            for name in os.listdir(self.sockets):
                os.unlink(name, dir_fd=self.sockets)
            os.rmdir(SOCKET_DIRECTORY, dir_fd=self.descriptor)
        except OSError:
            return
        for name in os.listdir(self.descriptor):
            os.unlink(name, dir_fd=self.descriptor)
        os.rmdir(self._name, dir_fd=self._parent)


def _open_directory(name, parent):
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)


def _listen(directory, name, backlog):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Through the descriptor, so that the path is short enough for any data directory.
    listener.bind("/proc/self/fd/%d/%s" % (directory, name))
    listener.listen(backlog)
    return listener
