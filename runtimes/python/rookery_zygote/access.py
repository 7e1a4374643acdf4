"""
Access to the instance of a pod or to a container. The native program serves each connection, so that the same
code does it in every kind of sandbox.
"""

import json
import os
import socket
import struct

from . import frames, native, process
from .failure import Refusal

#: Limits of open accesses of each kind in one sandbox, and their names. For commands as in
#: `src/sandbox/access.ts`.
_MOST_OPEN = {
    "exec": (32, "commands"),
    "dial": (256, "connections to ports"),
    "files": (64, "files and directories"),
    "account": (64, "files and directories"),
    "watch": (64, "watched directories"),
}
_TITLE = "rookery: access"
_EXIT_BROKEN = 70


def refuse(connection, code, message):
    try:
        frames.write_message(connection, {"ok": False, "code": code, "message": message})
    except OSError:
        # The caller has disconnected.
        pass


def refusal_when_full(kind, count):
    """Returns the Refusal if there is no free slot, or None."""
    if kind not in _MOST_OPEN:
        return Refusal("internal", "a sandbox has no access of kind %s" % kind)
    most, what = _MOST_OPEN[kind]
    if count < most:
        return None
    return Refusal("resource_exhausted", "too many %s are open in this sandbox (%d)" % (what, most))


class Table:
    """The process table of an instance: a child that executes the native program, and gets connections."""

    def __init__(self):
        #: The pid of the child, and the socket over which it gets connections.
        self.pid = self._control = None

    def is_running(self):
        return self.pid is not None

    def begin(self, pid, control):
        self.pid = pid
        self._control = control
        control.setblocking(False)

    def end(self):
        """Forgets the child, which has ended or is about to."""
        if self._control is not None:
            self._control.close()
        self.pid = self._control = None

    def give(self, connection):
        """Passes a connection to the child. Raises OSError."""
        self._control.sendmsg([b"c"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", connection.fileno()))])


class Server:
    """The native program, which a child executes to serve one access."""

    def __init__(self):
        self._program = None

    def prepare(self):
        """Loads the program. Called before the fork, so that it is loaded once. Raises Refusal."""
        try:
            if self._program is None:
                self._program = native.Program()
        except OSError as error:
            raise Refusal("unavailable", "a sandbox cannot be entered: %s" % error)

    def serve(self, connection, sandbox, kind):
        """
        Serves one access as the user of this sandbox. Ends the process.

        `kind`: exec, dial, files, account, watch, command: one whose output is sent after its end, or processes: the
        process table, to which `connection` brings its clients.
        """
        facts = dict(_facts_of(sandbox), kind=kind, connection=connection.fileno())
        self._execute(connection, "--access", lambda: native.memory_file(json.dumps(facts).encode()))

    def serve_container(self, connection):
        """Serves one access to the container that the connection names. Ends the process."""
        self._execute(connection, "--container", connection.fileno)

    def _execute(self, connection, mode, open_argument):
        try:
            argument = open_argument()
            process.close_all_but([0, 1, 2, connection.fileno(), argument, self._program.fileno()])
            for descriptor in (connection.fileno(), argument):
                os.set_inheritable(descriptor, True)
            self._program.execute([_TITLE, mode, str(argument)])
        except OSError as error:
            refuse(connection, "unavailable", "the sandbox cannot be entered: %s" % error.strerror)
        finally:
            os._exit(_EXIT_BROKEN)


def _facts_of(sandbox):
    """Returns how a process becomes the user of the sandbox, as `runtimes/native/src/entry.c` expects it."""
    has = sandbox.layers.has
    return {
        "env": sandbox.env,
        "workingDir": sandbox.working_dir,
        "uid": sandbox.identity.uid,
        "gid": sandbox.identity.gid,
        "groups": sandbox.identity.groups,
        "setsIds": os.geteuid() == 0 and not has("user"),
        "memoryMb": sandbox.limits["memoryMb"],
        "maxOpenFiles": sandbox.limits["maxOpenFiles"],
        "maxProcesses": sandbox.limits["maxProcesses"],
        "hasPid": has("pid"),
        "hasUser": has("user"),
        "hasCapabilities": has("capabilities"),
        "hasMemoryGroup": has("cgroup.memory"),
        "hasPidsGroup": has("cgroup.pids"),
    }


def keep_only(connection):
    """Closes all other descriptors, so that no path such as `/proc/self/fd/1` gives access to them."""
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    process.close_all_but([0, 1, 2, connection.fileno()])
