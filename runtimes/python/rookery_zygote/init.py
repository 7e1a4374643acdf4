"""The init of a sandbox: it reaps, keeps the log, runs commands for the control plane and tells the end.

It is pid 1 of the pid namespace, so that its own end is the end of everything inside. With nothing to do it is parked in `poll`.
"""

import os
import select
import signal
import socket
import time

from . import access, cgroups, execute, frames, layers, process, user_process, waiting
from .logfile import LogFile

_CHUNK = 65536
_MOST_CONNECTIONS = 64
_REQUEST_SECONDS = 5
_SEND_SECONDS = 2
#: Bound of killing what is left where there is no pid namespace to do it at once.
_KILL_SECONDS = 5
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class Init:
    def __init__(self, plan, place, oom_kills, limits_namespace):
        """`limits_namespace`: of `user_limits`, where there is one."""
        self._plan = plan
        self._limits_namespace = limits_namespace
        self._place = place
        self._listener = place.control_listener
        self._oom_kills = oom_kills
        self._log = LogFile(place.descriptor, plan.log_bytes, plan.log_files)
        self._sandbox = None
        self._user = 0
        self._status = None
        self._deadline = None
        #: Why it was asked to end, when somebody else than the control plane did.
        self._cause = None
        #: Connections that wait for the end, or have not said yet what they want.
        self._connections = {}
        self._watchers = set()
        #: `{pid: way}` of the children that serve ways into the sandbox.
        self._open_ways = {}
        self._wake = waiting.Wakeup()
        self._output, self._output_writer = os.pipe()
        os.set_blocking(self._output, False)
        self._orders = None
        self._is_program = False
        self._has_children = True

    def fork_user(self, *others):
        """
        Forks the user's process, which waits for its orders; a second time it takes the place of the first. Raises
        `BecomeUser` in it. `others` are sockets that it must not have.
        """
        # The sandbox's own, which cannot be changed through the descriptor. A second fork is inside already.
        outside = self._plan.root.mount_point if self._plan.layers.has("mount") and not self._user else ""
        nothing = os.open(outside + "/dev/null", os.O_RDONLY | os.O_CLOEXEC)
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
                for held in (self._wake, self._listener, self._orders) + others:
                    held.detach()
                self.enter_user_limits()
            except BaseException:
                # Never a second init.
                os._exit(70)
            raise user_process.BecomeUser(self._plan.layers, self._plan.title, kept)
        os.close(nothing)
        theirs.close()

    def enter_user_limits(self):
        """Where everything of this sandbox is counted. The host's rights stay behind."""
        if self._limits_namespace is not None:
            layers.enter_user_limits(self._plan.layers, self._limits_namespace)
            self._limits_namespace = None

    def go(self, sandbox, orders):
        """Lets the user's process run."""
        self._sandbox = sandbox
        self._is_program = "argv" in orders
        frames.write_message(self._orders, orders)
        self._orders.close()
        os.close(self._output_writer)
        self._place.runtime_listener.close()

    def watch(self, connection):
        """Tells this connection the end."""
        connection.settimeout(_SEND_SECONDS)
        self._connections[connection.fileno()] = connection
        self._watchers.add(connection.fileno())

    def run(self):
        """Until the sandbox has ended. Never returns."""
        self._plan.title.set("rookery: init %s" % self._sandbox.instance_id)
        self._poll = poll = select.poll()
        output, listener, wake = self._output, self._listener.fileno(), self._wake.fileno()
        for descriptor in (output, listener, wake):
            poll.register(descriptor, select.POLLIN)
        for descriptor in self._connections:
            poll.register(descriptor, select.POLLIN)
        # A child that ended before anybody listened.
        self._reap()
        while self._status is None or self._is_ending():
            for descriptor, _event in poll.poll(waiting.left_ms(self._deadline)):
                if descriptor == output:
                    self._pump()
                elif descriptor == wake:
                    self._wake.clear()
                    self._reap()
                elif descriptor == listener:
                    self._accept()
                else:
                    self._serve(descriptor)
            if waiting.is_over(self._deadline):
                self._kill_runtime()
        self._end()

    def kill_all(self):
        """Everything inside but this process; returns when it is gone."""
        if self._plan.layers.has("pid"):
            process.kill(-1)
            waiting.reap(self._has_ended, 0)
            return
        deadline = time.monotonic() + _KILL_SECONDS
        while not waiting.is_over(deadline):
            left = process.descendants(os.getpid())
            if not left:
                return
            # Parents first: one that serves a way into the sandbox must not be there to tell how its command ended.
            for pid in left:
                process.kill(pid)
            self._reap()

    def _pump(self):
        try:
            data = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._poll.unregister(self._output)
            return False
        self._log.write(data)
        return True

    def _reap(self):
        self._has_children = waiting.reap(self._has_ended)

    def _has_ended(self, pid, status):
        if pid == self._user and self._status is None:
            self._status = status
        self._open_ways.pop(pid, None)

    def _accept(self):
        try:
            connection, _address = self._listener.accept()
        except OSError:
            return
        if len(self._connections) >= _MOST_CONNECTIONS:
            connection.close()
            return
        connection.settimeout(_REQUEST_SECONDS)
        self._connections[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.POLLIN)

    def _serve(self, descriptor):
        connection = self._connections.get(descriptor)
        if connection is None:
            return
        try:
            request = frames.read_message(connection, _CHUNK)
        except (OSError, frames.FrameError):
            request = None
        operation = None if request is None else request.get("op")
        if operation == "watch":
            self._watchers.add(descriptor)
        elif operation == "stop":
            self._watchers.add(descriptor)
            self._cause = self._cause or request.get("cause")
            self._stop(request["graceMs"])
        elif operation == "exec":
            self._execute(connection)
            self._close(descriptor)
        elif operation == "access":
            self._open_way(connection, request.get("way"))
            self._close(descriptor)
        elif operation == "stats":
            self._send(connection, self._stats())
        else:
            self._close(descriptor)

    def _close(self, descriptor):
        connection = self._connections.pop(descriptor)
        self._watchers.discard(descriptor)
        self._poll.unregister(descriptor)
        connection.close()

    def _stop(self, grace_ms):
        """Asks the runtime to end. A second stop can only shorten the time of the first."""
        deadline = time.monotonic() + grace_ms / 1000.0
        if self._deadline is None:
            try:
                os.kill(self._asked_to_end(), signal.SIGTERM)
            except OSError:
                pass
        self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)

    def _asked_to_end(self):
        """A runtime sees to its own children; those of a program (a shell's) have to be asked too."""
        return -1 if self._is_program and self._plan.layers.has("pid") else self._user

    def _is_ending(self):
        """A program was asked to end and did, and processes of it still use the time that they were given."""
        return self._deadline is not None and self._asked_to_end() == -1 and self._has_children

    def _kill_runtime(self):
        self._deadline = None
        if self._status is not None:
            return
        process.kill(self._user)

    def _execute(self, connection):
        try:
            child = os.fork()
        except OSError as error:
            self._send(connection, {"error": "no process can be started inside: %s" % error.strerror})
            return
        if child == 0:
            execute.serve(connection, self._sandbox)

    def _open_way(self, connection, way):
        """A child serves it; here it is counted and no connection any more, so that long ones are in nobody's way."""
        # Ends that were not heard of yet make room.
        self._reap()
        if access.refuse_when_full(connection, way, list(self._open_ways.values()).count(way)):
            return
        try:
            child = os.fork()
        except OSError as error:
            access.refuse(connection, "unavailable", "no process can be started inside: %s" % error.strerror)
            return
        if child == 0:
            access.serve(connection, self._sandbox, way)
        self._open_ways[child] = way

    def _stats(self):
        """For where no control group counts: what /proc says of those inside."""
        page = os.sysconf("SC_PAGE_SIZE")
        memory = processes = 0
        ticks = 0
        for pid in [os.getpid()] + process.descendants(os.getpid()):
            try:
                with open("/proc/%d/statm" % pid) as source:
                    fields = source.read().split()
                with open("/proc/%d/stat" % pid, "rb") as source:
                    data = source.read()
            except OSError:
                continue
            times = data[data.rindex(b")") + 2 :].split()[11:15]
            memory += (int(fields[1]) - int(fields[2])) * page
            ticks += sum(int(field) for field in times)
            processes += 1
        return {
            "memoryBytes": memory,
            "cpuMicros": ticks * 1000000 // os.sysconf("SC_CLK_TCK"),
            "processes": processes,
        }

    def _end(self):
        """Nothing else runs when the end is reported."""
        self.kill_all()
        os.set_blocking(self._output, False)
        while True:
            try:
                data = os.read(self._output, _CHUNK)
            except BlockingIOError:
                break
            if not data:
                break
            self._log.write(data)
        status = self._status
        killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        result = {
            "code": None if killed_by else os.WEXITSTATUS(status),
            "signal": None if killed_by is None else _signal_name(killed_by),
            "oomKilled": _is_killed(status) and cgroups.read_oom_kills(self._oom_kills) > 0,
            "atMs": int(time.time() * 1000),
        }
        if self._cause is not None:
            result["cause"] = self._cause
        self._write_exit(result)
        for descriptor in self._watchers:
            self._send(self._connections[descriptor], {"exit": result})
        os._exit(0)

    def _write_exit(self, result):
        try:
            self._place.publish("exit.json", result)
        except OSError:
            # A full disk: those who watch are still told.
            pass

    @staticmethod
    def _send(connection, message):
        try:
            frames.write_message(connection, message)
        except OSError:
            pass


def _is_killed(status):
    """By SIGKILL, itself or, as a shell tells it, what it ran."""
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGKILL
    return os.WEXITSTATUS(status) == 128 + signal.SIGKILL


def _signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIGRT%d" % number
