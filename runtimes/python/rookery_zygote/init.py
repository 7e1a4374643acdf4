"""The init of a sandbox while it is made: the parent of the user's process. Once that waits for its orders, it becomes the native program
(`runtimes/native`), as the same process, and that waits for its instance.

It is pid 1 of the pid namespace, so that its own end is the end of everything inside.
"""

import os
import signal
import socket

from . import layers, user_process


class Init:
    def __init__(self, plan, place, oom_kills, offer):
        """`offer`: of `user_limits`, where there are any. The user's process makes its namespace."""
        self._plan = plan
        self._offer = offer
        self._limits_namespace = None
        self._place = place
        self._oom_kills = oom_kills
        self._user = 0
        self._output, self._output_writer = os.pipe()
        self._orders = None

    def fork_user(self, root, *others):
        """
        Forks the user's process, which waits for its orders; a second time it takes the place of the first. Raises
        `BecomeUser` in it. `root`: where the sandbox's is in sight. `others` are sockets that it must not have.
        """
        # The sandbox's own, which cannot be changed through the descriptor.
        nothing = os.open(root + "/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        if self._user:
            os.kill(self._user, signal.SIGKILL)
            os.waitpid(self._user, 0)
            self._orders.close()
        self._orders, theirs = socket.socketpair()
        self._user = os.fork()
        if self._user == 0:
            try:
                writer = self._output_writer
                kept = [nothing, writer, writer, self._place.runtime_listener.detach(), theirs.detach()]
                # These objects must not close descriptors that are other ones by the time they go.
                for held in (self._place.control_listener, self._orders) + others:
                    held.detach()
                if self._offer is None:
                    self.enter_user_limits()
                else:
                    layers.make_user_limits(self._plan.layers, self._offer)
            except BaseException:
                # Never a second init.
                os._exit(70)
            raise user_process.BecomeUser(self._plan.layers, self._plan.title, kept, self._plan.resident)
        os.close(nothing)
        theirs.close()

    def take_user_limits(self):
        """After the first fork: why there are none though there should be, else None."""
        offer, self._offer = self._offer, None
        try:
            self._limits_namespace = None if offer is None else offer.take()
        except OSError as error:
            return error.strerror or str(error)
        return None

    def enter_user_limits(self):
        """Where everything of this sandbox is counted. The host's rights stay behind."""
        if self._limits_namespace is not None:
            layers.enter_user_limits(self._plan.layers, self._limits_namespace)
            self._limits_namespace = None

    @property
    def descriptors(self):
        """By their names for the native program."""
        held = self._limits_namespace
        return {
            "directory": self._place.descriptor,
            "workers": self._place.workers,
            "instances": self._place.instances,
            "sockets": self._place.sockets,
            "listener": self._place.control_listener.fileno(),
            "runtimeListener": self._place.runtime_listener.fileno(),
            "output": self._output,
            "outputWriter": self._output_writer,
            "orders": self._orders.fileno(),
            "oomKills": -1 if self._oom_kills is None else self._oom_kills,
            "limitsNamespace": -1 if held is None else held.descriptor,
        }

    @property
    def facts(self):
        """What the native program must know of the user's process."""
        held = self._limits_namespace
        return {"user": self._user, "limitsOwner": None if held is None else held.owner}
