"""A process that waits for the instance of a pod. All work that needs no orders is done, and no user code has
run in it.

The worker is a separate program and no fork of the manager, whose memory holds the pod's keys. With its
orders it becomes the user's process of `rookery_zygote.user_process`.
"""

import gc
import os
import select
import socket
import sys

import rookery_runtime
from rookery_runtime import unix_path
from rookery_zygote import command, frames, process, rehearsal, user_process

_BACKLOG = 128
_HAND_OVER_SECONDS = 10
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from rookery_pod import worker; worker.main()"
#: Space for the title that the program writes over its command line.
_TITLE_SPACE = " " * 64
_ENV = {"PATH": os.defpath, "LANG": "C.UTF-8"}
#: The directory of Rookery's packages.
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Layers:
    """
    The layers around the code of a pod, as `user_process` expects them.

    The cluster provides the others.
    """

    def __init__(self, *more):
        # Only pid 1 has a pid namespace to itself.
        first = ("pid",) if os.getpid() == 1 else ()
        self._held = {"capabilities", "cgroup.memory", "cgroup.pids"}.union(first, more)

    def has(self, layer):
        return layer in self._held


class Worker:
    """The manager's handle of the worker process."""

    def __init__(self, run, loop, on_ready):
        """
        Starts the worker, with its socket in the empty directory `run`.

        Calls `on_ready` when it waits for orders.
        """
        self._loop = loop
        self._on_ready = on_ready
        self.is_ready = False
        self.sockets = os.path.join(run, "sockets")
        os.mkdir(self.sockets)
        # A program of another user may create its socket here. The pod has no other users.
        os.chmod(self.sockets, 0o777)
        self.socket = os.path.join(self.sockets, "runtime")
        listener = unix_path.listen(self.socket, _BACKLOG)
        os.chmod(self.socket, 0o666)
        self._channel, theirs = socket.socketpair()
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                command.detach([nothing, 1, 2, listener.fileno(), theirs.fileno()])
                os.execve(sys.executable, [sys.executable, "-IB", "-c", _BOOT, HERE, _TITLE_SPACE], _ENV)
            finally:
                os._exit(70)
        for one in (listener, theirs):
            one.close()
        os.close(nothing)
        loop.want(self._channel.fileno(), select.POLLIN, self._on_channel)

    def _on_channel(self, _event):
        self._loop.want(self._channel.fileno(), 0, None)
        try:
            self.is_ready = self._channel.recv(1) != b""
        except OSError:
            pass
        if self.is_ready:
            self._on_ready()

    def leave_socket_to_program(self):
        os.unlink(self.socket)

    def go(self, orders):
        """Sends the orders and starts the code. Raises OSError when the worker has ended."""
        self._channel.settimeout(_HAND_OVER_SECONDS)
        frames.write_message(self._channel, orders)
        self._channel.sendall(user_process.GO)
        self._channel.close()


def main():
    """Runs the worker. Never returns."""
    gc.disable()
    sys.argv[1:] = []
    title = process.Title()
    title.set("rookery: worker")
    rookery_runtime.after_fork()
    rehearsal.prepare(2)
    user_process.obey(Layers(), title, lambda channel: channel.send(b"r"))
