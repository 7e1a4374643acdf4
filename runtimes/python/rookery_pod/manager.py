"""Pid 1 of a pod's main container: starts the instance for a proven connection, reaps processes, and reports
the end.

The instance's code runs beside the manager, as the same user in Rookery's own image. So all secrets are in
the memory of this process, which other processes cannot inspect, and in its forks until they execute a
program. The worker that waits for an instance is a separate program.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time

from rookery_runtime import unix_path
from rookery_zygote import access, ending, frames, process, sandbox, seccomp, syscalls, user_process, waiting
from rookery_zygote.failure import Refusal, StartFailure, code_of

from . import cleaning, gate, keys, measures, orders, put
from .link import Link
from .loop import Loop
from .worker import Layers, Worker

#: Grace when the cluster ends the pod.
_GRACE_MS = 10000
#: Cause of that end. The cluster reports its own reason a moment later.
_CLUSTER_ENDS_IT = "the cluster ended its pod"
_KILL_SECONDS = 10
_STEP_SECONDS = 0.002
#: Time limit for connecting to a runtime.
_RUNTIME_SECONDS = 120
_RETRY_SECONDS = 0.005
_MOST_RUNTIME = 64
_MOST_COMMANDS = 32
#: Time that waiting clients have to read the answer before the manager exits.
_HEARD_SECONDS = 3
_WORKER_SECONDS = 60
_NO_FILTER = "the pod has the system call filter of its cluster alone: its kernel takes no other"
_EXIT_NO_KEYS = 78
_EXIT_BROKEN = 70


class Manager:
    def __init__(self, options, own_env, is_filtered):
        self._warnings = [] if is_filtered else [_NO_FILTER]
        self._run = options.run
        self._host, self._port = options.listen
        self._proof_seconds = options.proof_seconds
        #: The directories that a reset empties; None to search for them.
        self._writable = options.writable
        self._own_env = own_env
        self._is_first = os.getpid() == 1
        self._layers = Layers("secrets")
        if not self._is_first:
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        self._keys = keys.Keys(self._run)
        self._measures = measures.Measures()
        self._access = access.Server()
        self._bearing = cleaning.Bearing()
        self._is_asked_to_end = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        # Without a handler pid 1 ignores signals from inside. SIGHUP and SIGPIPE would end this process when
        # it has another pid.
        for number in (signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self._loop = Loop(self._on_wake)
        self._gate = None
        self._worker = None
        self._worker_timer = None
        #: The link that waits for a reset.
        self._resetting = None
        self._exit_code = None
        self._begin()

    def _begin(self):
        """Sets the state of a pod without an instance."""
        self._instance = None
        #: The wait status of the instance's process, and the description of its end.
        self._status = self._exit = None
        self._cause = None
        self._deadline = None
        self._waiting = []
        #: The children that serve accesses, as `{pid: kind}`, and the connections to the runtime.
        self._accesses = {}
        self._runtimes = set()
        self._table = access.Table()
        self._has_children = True

    def run(self):
        """Serves until the pod ends. Never returns."""
        self._start_worker()
        while self._exit_code is None or self._gate is not None and self._gate.is_busy():
            self._loop.run_once()
        os._exit(self._exit_code)

    def _start_worker(self):
        self._worker = Worker(self._run, self._loop, self._on_worker)
        self._worker_timer = self._loop.after(_WORKER_SECONDS, lambda: self._break_down("the worker does not start"))

    def _on_worker(self):
        self._loop.cancel(self._worker_timer)
        if self._gate is None:
            # The pod listens only now, so that a client that connects finds a ready pod.
            listener = gate.listen(self._host, self._port)
            if self._port == 0:
                sys.stdout.write("%d\n" % listener.getsockname()[1])
                sys.stdout.flush()
            self._gate = gate.Gate(self._loop, listener, self._keys, self._serve, self._proof_seconds)
        link, self._resetting = self._resetting, None
        if link is not None:
            link.answer({"ok": True})

    def _break_down(self, reason):
        """Ends the process because the pod is unusable. Never returns."""
        sys.stderr.write("the manager of this pod ends: %s\n" % reason)
        sys.stderr.flush()
        self._worker = None
        self._kill_all()
        os._exit(_EXIT_BROKEN)

    # Requests

    def _serve(self, link, frame):
        try:
            request = json.loads(frame.decode("utf-8"))
            if not isinstance(request, dict):
                raise ValueError("a request that is no object")
            operation = self._OPERATIONS.get(request.get("op"))
            if operation is None:
                raise Refusal("internal", "the manager of a pod has no operation %s" % request.get("op"))
            operation(self, link, request)
        except (Refusal, StartFailure) as failure:
            link.answer({"ok": False, "code": failure.code, "message": failure.message})
        except Exception as error:
            # The failure of a request must not affect the instance.
            message = "the manager of the pod failed: %s: %s" % (type(error).__name__, error)
            link.answer({"ok": False, "code": code_of(error), "message": message})

    def _start(self, link, request):
        if self._instance is not None or self._resetting is not None:
            raise Refusal("already_exists", "the pod has an instance")
        if self._exit_code is not None or self._is_asked_to_end:
            raise Refusal("unavailable", "the pod is ending")
        request["env"] = orders.code_env(request, self._own_env)
        # The cluster enforces both limits.
        made = sandbox.Sandbox(dict(request, memoryMb=0, maxProcesses=0), self._layers)
        made.identity, warnings = orders.find_identity(request["user"])
        # Only small archives, since all other clients wait meanwhile. No instance exists yet.
        for code in request.get("code", ()):
            put.unpack(code)
        told = orders.make(request, made, self._worker)
        self._make_home(made)
        self._measures.begin()
        self._worker.go(told)
        self._instance = made
        self._is_program = "argv" in told
        self._ends_with_it = request["endsWithInstance"]
        link.answer({"ok": True, "uid": made.identity.uid, "warnings": self._warnings + warnings})

    @staticmethod
    def _make_home(made):
        home = made.env.get("HOME", "")
        try:
            if home.startswith("/"):
                os.makedirs(home, exist_ok=True)
                os.chown(home, made.identity.uid, made.identity.gid)
        except OSError:
            # The directory belongs to another user, or there is no space for it.
            pass

    def _wait(self, link, _request):
        if self._instance is None:
            raise Refusal("failed_precondition", "the pod has no instance")
        if self._exit is not None:
            link.answer({"ok": True, "exit": self._exit})
            return
        self._waiting = [one for one in self._waiting if one.is_open] + [link]

    def _stop(self, link, request):
        if self._instance is None:
            link.answer({"ok": True})
            return
        if self._exit is None:
            self._cause = self._cause or request.get("cause")
            self._end_within(request["graceMs"])
        self._wait(link, request)

    def _reset(self, link, _request):
        """
        Restores the pod to the state before its instance.

        If that fails, the pod is unusable and the manager ends.
        """
        if self._resetting is not None or self._exit_code is not None:
            raise Refusal("failed_precondition", "the pod is being reset, or ends")
        if self._instance is not None and self._exit is None:
            self._ends_with_it = False
            if not self._kill_all():
                self._break_down("a process does not end")
            self._tell_end()
        # The end of the worker is expected from now on.
        self._worker = None
        try:
            self._clean()
        except cleaning.Dirty as reason:
            link.answer({"ok": False, "code": "failed_precondition", "message": "the pod cannot be used again: %s" % reason})
            self._finish(_EXIT_BROKEN)
            return
        self._begin()
        self._resetting = link
        self._start_worker()

    def _clean(self):
        if not self._kill_all():
            raise cleaning.Dirty("a process does not end")
        self._bearing.check()
        self._bearing.restore_streams()
        if self._is_first:
            cleaning.remove_ipc()
        places = cleaning.find_places() if self._writable is None else self._writable
        cleaning.clean(places + [self._run])

    def _stats(self, link, _request):
        self._demand_running()
        link.answer(dict(self._measures.stats(), ok=True))

    def _open_runtime(self, link, _request):
        self._demand_running()
        self._runtimes = {one for one in self._runtimes if one.is_open}
        if len(self._runtimes) >= _MOST_RUNTIME:
            raise Refusal("resource_exhausted", "too many connections to the runtime are open (%d)" % _MOST_RUNTIME)
        self._runtimes.add(link)
        self._join_runtime(link, time.monotonic() + _RUNTIME_SECONDS)

    def _join_runtime(self, link, deadline):
        """Tries until the runtime listens, the instance has ended, or the deadline has passed."""
        if not link.is_open:
            return
        connection = self._connect_runtime()
        if connection is not None:
            link.join(connection)
        elif self._status is not None or waiting.is_over(deadline):
            link.close()
        else:
            self._loop.after(_RETRY_SECONDS, lambda: self._join_runtime(link, deadline))

    def _connect_runtime(self):
        """
        Returns a connection, or None while nothing listens.

        Another user's program may have made the socket for its user only.
        """
        uid, gid = self._instance.identity.uid, self._instance.identity.gid
        is_other = os.geteuid() == 0 and uid != 0
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            if is_other:
                os.setegid(gid)
                os.seteuid(uid)
            with unix_path.short(self._worker.socket) as place:
                connection.connect(place)
            return connection
        except OSError:
            connection.close()
            return None
        finally:
            if is_other:
                os.seteuid(0)
                os.setegid(0)

    def _open_access(self, link, request):
        self._demand_running()
        kind = request.get("way")
        if kind == "processes":
            self._open_processes(link)
            return
        # Reaps first, so that ended accesses free their slots.
        self._reap()
        refusal = access.refusal_when_full(kind, list(self._accesses.values()).count(kind))
        if refusal is not None:
            raise refusal
        self._access.prepare()
        self._fork(link, kind, lambda connection: self._access.serve(connection, self._instance, kind))

    def _open_processes(self, link):
        """Passes the link to the process table, which this starts if there is none."""
        self._reap()
        ours, theirs = socket.socketpair()
        try:
            if not self._table.is_running():
                self._start_table()
            self._table.give(theirs)
        except OSError as error:
            ours.close()
            raise Refusal("unavailable", "the process table of this sandbox cannot be reached: %s" % error.strerror)
        finally:
            theirs.close()
        link.join(ours)

    def _start_table(self):
        self._access.prepare()
        control, theirs = socket.socketpair()
        with theirs:
            child = os.fork()
            if child == 0:
                try:
                    self._loop.leave()
                    self._access.serve(theirs, self._instance, "processes")
                finally:
                    os._exit(1)
        self._table.begin(child, control)

    def _execute(self, link, _request):
        self._demand_running()
        self._reap()
        if list(self._accesses.values()).count("command") >= _MOST_COMMANDS:
            raise Refusal("resource_exhausted", "too many commands run in this sandbox (%d)" % _MOST_COMMANDS)
        self._access.prepare()
        self._fork(link, "command", lambda connection: self._access.serve(connection, self._instance, "command"))

    def _put(self, link, request):
        if self._instance is not None or self._resetting is not None:
            raise Refusal("failed_precondition", "the code comes before the instance, and the pod has one")
        identity, _warnings = orders.find_identity("" if request["readonly"] else request["user"])
        self._fork(link, "put", lambda connection: _serve_put(connection, request, identity))

    def _fork(self, link, kind, serve):
        """Serves the link in a child, and counts the child."""
        ours, theirs = socket.socketpair()
        try:
            child = os.fork()
        except OSError as error:
            ours.close()
            theirs.close()
            raise Refusal("unavailable", "no process can be started inside: %s" % error.strerror)
        if child == 0:
            try:
                self._loop.leave()
                serve(theirs)
            finally:
                os._exit(1)
        theirs.close()
        self._accesses[child] = kind
        link.join(ours)

    def _demand_running(self):
        if self._instance is None or self._status is not None:
            raise Refusal("failed_precondition", "no instance runs in the pod")

    _OPERATIONS = {
        "start": _start,
        "wait": _wait,
        "stop": _stop,
        "reset": _reset,
        "stats": _stats,
        "runtime": _open_runtime,
        "access": _open_access,
        "exec": _execute,
        "put": _put,
    }

    # Ends

    def _on_signal(self, *_ignored):
        self._is_asked_to_end = True

    def _on_wake(self):
        self._reap()
        if self._is_asked_to_end and self._exit_code is None:
            if self._instance is None or self._exit is not None:
                self._finish(0)
            elif self._deadline is None:
                self._ends_with_it = True
                self._cause = self._cause or _CLUSTER_ENDS_IT
                self._end_within(_GRACE_MS)

    def _reap(self):
        self._has_children = waiting.reap(self._has_ended)
        self._look_for_end()

    def _has_ended(self, pid, status):
        self._accesses.pop(pid, None)
        if pid == self._table.pid:
            self._table.end()
        if self._worker is None or pid != self._worker.pid:
            return
        if self._instance is None:
            self._break_down("the worker has ended")
        elif self._status is None:
            self._status = status

    def _look_for_end(self):
        if self._instance is None or self._status is None or self._exit is not None:
            return
        # The program has ended as requested, but its child processes may use the rest of the grace.
        if self._deadline is not None and self._is_program and self._is_first and self._has_children:
            return
        if not self._kill_all():
            self._break_down("a process does not end")
        self._tell_end()

    def _end_within(self, grace_ms):
        """Ends the instance within a grace. A second call can only shorten the first grace."""
        moment = time.monotonic() + grace_ms / 1000.0
        if self._deadline is None:
            # A runtime ends its own children. Those of a program, such as a shell, have to be signalled too.
            try:
                os.kill(-1 if self._is_program and self._is_first else self._worker.pid, signal.SIGTERM)
            except OSError:
                pass
        elif moment >= self._deadline:
            return
        self._deadline = moment
        self._loop.after(grace_ms / 1000.0, self._on_deadline)

    def _on_deadline(self):
        if self._instance is None or self._exit is not None or not waiting.is_over(self._deadline):
            return
        if not self._kill_all():
            self._break_down("a process does not end")
        self._look_for_end()

    def _kill_all(self):
        """Kills all processes except this one. Returns False when one does not end within 10 s."""

        def is_done():
            if self._is_first:
                process.kill(-1)
            else:
                for pid in process.descendants(os.getpid()):
                    process.kill(pid)
            return not waiting.reap(self._has_ended)

        self._has_children = not waiting.until(is_done, _KILL_SECONDS, _STEP_SECONDS)
        return not self._has_children

    def _tell_end(self):
        self._exit = ending.exit_of(self._status, self._measures.has_killed)
        if self._cause is not None:
            self._exit["cause"] = self._cause
        waiters, self._waiting = self._waiting, []
        for link in waiters:
            link.answer({"ok": True, "exit": self._exit})
        if self._ends_with_it:
            self._finish(self._exit["code"] if self._exit["signal"] is None else 128 + os.WTERMSIG(self._status))

    def _finish(self, code):
        """Ends the manager when all clients have disconnected, or after 3 s."""
        self._exit_code = code
        self._loop.after(_HEARD_SECONDS, lambda: os._exit(code))


def _serve_put(connection, request, identity):
    try:
        access.keep_only(connection)
        if identity.uid != os.geteuid():
            user_process.become(Layers("secrets"), _ids(identity), {"maxOpenFiles": 1024})
        os.umask(0o022)
        put.serve(connection, request)
        os._exit(0)
    except Refusal as refusal:
        access.refuse(connection, refusal.code, refusal.message)
        # Reads until the client has read the refusal, since the refused data may still arrive.
        connection.settimeout(_HEARD_SECONDS)
        while connection.recv(1 << 16):
            pass
    except (OSError, frames.FrameError):
        pass


def _ids(identity):
    return {"uid": identity.uid, "gid": identity.gid, "groups": identity.groups, "set": os.geteuid() == 0, "map": False}


def _filter_calls():
    """
    Installs the system call filter for this process and all its children.

    Returns False if the kernel refuses.
    """
    try:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        seccomp.install()
    except OSError:
        return False
    return True


def _address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main():
    """Runs the manager. Never returns."""
    parser = argparse.ArgumentParser(prog="manager", description="The manager of a pod.")
    parser.add_argument("--run", default="/run/rookery", help="where its keys are, and its sockets will be")
    parser.add_argument("--listen", type=_address, default=("", gate.PORT), metavar="[HOST]:PORT",
                        help="with port 0 the first line of the output is the one that it got")
    parser.add_argument("--proof-seconds", type=float, default=gate.PROOF_SECONDS, help="what a client has until it is heard")
    parser.add_argument("--writable", action="append", metavar="DIRECTORY", help="what a reset empties, in place of all that is found")
    options = parser.parse_args()
    if os.getpid() != 1 and options.writable is None:
        parser.error("--writable is needed where this is not pid 1: everything that is found would be emptied")
    own_env = dict(os.environ)
    os.umask(0o077)
    # Set before the keys are read.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    syscalls.set_name("rookery")
    try:
        manager = Manager(options, own_env, _filter_calls())
    except keys.NoKeys as error:
        sys.exit("the keys of this pod are missing, as after a restart of its container: %s" % error)
    manager.run()
