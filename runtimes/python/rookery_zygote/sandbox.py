"""From a worker to an instance: everything between the request and the user's code, in the order in which it must happen."""

import json
import os
import socket

from . import directory, frames, identity, layers, mounts, network, program, root, syscalls, user_process
from .failure import LayerFailure, StartFailure, code_of

_READ_REQUEST_SECONDS = 10
#: Where a program that speaks the runtime protocol finds its socket.
_INSIDE_SOCKETS = "/run/rookery"


class _UserProcessEnded(Exception):
    """Before it had its orders: nothing of the request has run, and it is worth another try."""


class Sandbox:
    """One instance as its init knows it."""

    def __init__(self, request, held):
        self.layers = held
        self.instance_id = request["instanceId"]
        self.env = request["env"]
        self.working_dir = request["workingDir"]
        self.limits = {
            "memoryMb": request["memoryMb"],
            "maxOpenFiles": request["maxOpenFiles"],
            "maxProcesses": request["maxProcesses"],
        }
        self.identity = None


def refuse(connection, code, message):
    try:
        frames.write_message(connection, {"ok": False, "code": code, "message": message})
    except OSError:
        pass


def run(plan, prepared, connection, control):
    """Starts the instance that is asked for over `connection` and stays its init to the end."""
    try:
        connection.settimeout(_READ_REQUEST_SECONDS)
        request = frames.read_message(connection)
        connection.settimeout(None)
    except (OSError, frames.FrameError):
        return
    if request is None:
        return
    try:
        start = _Start(plan, prepared, request, connection, control)
        start.adopt_directory()
        _tell(control, {"taken": start.sandbox.instance_id})
        is_running = start.run()
        control.close()
    except _UserProcessEnded:
        _undo(prepared)
        # An end without an answer: the control plane asks again.
        os._exit(1)
    except StartFailure as failure:
        _undo(prepared)
        refuse(connection, failure.code, failure.message)
        os._exit(1)
    except (OSError, LayerFailure, KeyError, TypeError, ValueError) as error:
        _undo(prepared)
        message = "the sandbox cannot be started: %s: %s" % (type(error).__name__, error)
        refuse(connection, code_of(error), message)
        os._exit(1)
    if not is_running:
        _undo(prepared)
        os._exit(0)
    prepared.first.run()


def _tell(control, message):
    try:
        control.send(json.dumps(message).encode())
    except OSError:
        # The zygote was killed. An instance does not need it.
        pass


def _undo(prepared):
    """Before the answer, so that nothing is left when it comes."""
    prepared.first.kill_all()
    prepared.directory.remove()


class _Start:
    def __init__(self, plan, prepared, request, connection, control):
        self._plan = plan
        self._layers = plan.layers
        self._prepared = prepared
        self._directory = prepared.directory
        self._request = request
        self._connection = connection
        self._control = control
        command = request["command"]
        # Without a program the Python runtime is what tells each call so.
        self._is_program = command["kind"] == "exec" and len(command["argv"]) > 0
        self._makes_socket = command.get("makesSocket", False)
        self._may_serve_http = command.get("orServesHttp", False)
        self._warnings = list(prepared.warnings)
        self.sandbox = Sandbox(request, plan.layers)

    def adopt_directory(self):
        try:
            self._directory.adopt(self.sandbox.instance_id)
        except OSError:
            raise StartFailure("an instance %s is here already" % self.sandbox.instance_id, "already_exists")

    def run(self):
        """False when the control plane has given the start up."""
        sandbox = self.sandbox
        if self._warnings and self._request["requireIsolation"]:
            raise StartFailure("isolation is required, and %s" % "; ".join(self._warnings))
        self._find_user()
        self._mount()
        self._check_program()
        self._enter_network()
        self._enter_user_namespace()
        layers.drop_capabilities(self._layers)
        # Nobody inside may look into this process, whoever they are.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        # Late, so that a small share of the cpu does not slow the making of the sandbox.
        self._limit()
        if self._is_given_up():
            return False
        try:
            self._prepared.first.go(sandbox, self._orders())
        except BrokenPipeError:
            raise _UserProcessEnded()
        answer = {
            "ok": True,
            "data": self._prepared.state,
            "uid": sandbox.identity.uid,
            "warnings": self._warnings,
        }
        try:
            frames.write_message(self._connection, answer)
        except OSError:
            # Its caller has just gone, and the user's code may have begun.
            if not self._request["survivesCaller"]:
                return False
        self._prepared.first.watch(self._connection)
        # Nothing of the user's can have come this far in the meantime; the user's process has its own already.
        self._prepared.first.enter_user_limits()
        layers.drop_capabilities(self._layers)
        layers.filter_calls(self._layers)
        return True

    def _orders(self):
        """What the user's process needs to know. It is all that it knows of this instance."""
        request, sandbox = self._request, self.sandbox
        orders = {
            "instanceId": sandbox.instance_id,
            "env": sandbox.env,
            "workingDir": sandbox.working_dir,
            "identity": user_process.identity_orders(sandbox),
            "limits": sandbox.limits,
        }
        if not self._is_program:
            orders["secret"] = request["secret"]
            if request["command"]["kind"] == "http":
                orders["server"] = request["command"]["argv"]
            return orders
        inside = _INSIDE_SOCKETS
        if not self._layers.has("mount"):
            inside = os.path.join(self._plan.instances, sandbox.instance_id, directory.SOCKET_DIRECTORY)
        orders["argv"] = request["command"]["argv"]
        orders["env"] = dict(
            sandbox.env,
            ROOKERY_RUNTIME_SOCKET=inside + "/" + directory.SOCKET_NAME,
            ROOKERY_RUNTIME_SECRET=request["secret"],
        )
        orders["keepsListener"] = not self._makes_socket
        orders["mayServeHttp"] = self._may_serve_http
        if not self._makes_socket:
            orders["env"]["ROOKERY_RUNTIME_FD"] = str(user_process.LISTENER)
        return orders

    def _find_user(self):
        asked = self._request["user"]
        self.sandbox.identity = found = identity.find(asked) if asked else self._plan.root_identity
        if user_process.sets_ids(self._layers):
            if self._is_program:
                self._directory.give_sockets_to(found.uid, found.gid)
        elif not self._layers.has("user") and found.uid != os.geteuid():
            self._warnings.append(
                "the code runs as uid %d and not as %s (uid %d): the server is not root here"
                % (os.geteuid(), found.name, found.uid)
            )
        if self._is_program and self._makes_socket:
            self._directory.leave_socket_to_program()

    def _check_program(self):
        command, found = self._request["command"], self.sandbox.identity
        if "deployDir" not in command:
            return
        program.check(command)
        if found.uid != 0 and user_process.sets_ids(self._layers):
            program.check_for_user(command["argv"][0], found)

    def _enter_network(self):
        """Into the network that was asked for, unless the worker is in it already."""
        asked, networks, state = self._request["network"], self._plan.networks, self._prepared.state
        # A worker is in the host's network or in one of its own that reaches out.
        is_own = state["hasOwnNetwork"]
        is_http = self._request["command"]["kind"] == "http"
        if asked == "own" and not is_own and networks.missing is None:
            state.update(address=network.enter(networks.range), hasOwnNetwork=True)
        elif asked == "none" or asked == "own" and not is_own and is_http:
            self._isolate()
        else:
            # On a shared network the port may be another program's.
            self._may_serve_http = self._may_serve_http and is_own
            return
        self._directory.write("state.json", state)
        # The user's process was forked in another network.
        self._prepared.first.fork_user(self._control, self._connection)

    def _isolate(self):
        if not self._layers.has("net"):
            raise StartFailure(
                "a network of its own is not possible on this machine: network namespaces are not available"
            )
        network.isolate()
        self._prepared.state.update(address=None, hasOwnNetwork=False)
        if self._prepared.passage is not None:
            self._prepared.passage.end()
        if self._request["network"] == "own":
            self._warnings.append(
                "the network of this http instance has loopback only and it reaches nothing outside: %s"
                % self._plan.networks.missing
            )

    def _mount(self):
        if not self._layers.has("mount"):
            self._accept_same_paths()
            return
        root.set_size(self._plan.root, self._request["memoryMb"])
        inside = self._plan.root.mount_point
        for item, source, needed in self._open_sources():
            try:
                mounts.mount_source(source, item["target"], item["readonly"], inside, needed)
            finally:
                os.close(source)
        if self._is_program:
            mounts.mount_source(self._directory.sockets, _INSIDE_SOCKETS, False, inside)
        self._make_home(inside)
        root.enter(self._plan.root)

    def _needed(self):
        """What a mount of the caller's must not hide."""
        needed = self._plan.root.needed + [item["target"] for item in self._request["platformMounts"]]
        if self._is_program:
            needed.append(_INSIDE_SOCKETS)
        if self._may_serve_http or self._request["command"]["kind"] == "http":
            needed.append(self._plan.root.runtime)
        return needed

    def _open_sources(self):
        """
        Each mount with a descriptor of its source and what it must not hide, one at a time: the platform's own, then the caller's, whose
        sources are checked.
        """
        for item in self._request["platformMounts"]:
            yield item, mounts.open_path(item["source"]), ()
        policy, needed = self._request["policy"], self._needed()
        for item in self._request["mounts"]:
            yield item, mounts.open_source(item["source"], policy), needed

    def _accept_same_paths(self):
        """Without a mount namespace a mount can only be where it already is."""
        for item, source, _needed in self._open_sources():
            resolved = os.readlink("/proc/self/fd/%d" % source)
            os.close(source)
            if os.path.realpath(mounts.normalize_target(item["target"])) != resolved:
                raise StartFailure(
                    "mounts need a mount namespace, which this machine does not allow; here source and target must be "
                    "the same path: %s, %s" % (item["source"], item["target"])
                )
            if item["readonly"]:
                self._warnings.append("%s is not read-only: there is no mount namespace on this machine" % item["target"])

    def _make_home(self, inside):
        """HOME exists and is the user's, unless it is a mount or the host's."""
        home = self.sandbox.env.get("HOME", "")
        if not home.startswith("/") or os.path.normpath(home) in ("/", "/root"):
            return
        try:
            descriptor = mounts.open_target(inside, mounts.normalize_target(home), True)
        except (OSError, StartFailure):
            return
        try:
            is_ours = os.fstat(descriptor).st_dev == os.stat(inside).st_dev
            if is_ours and user_process.sets_ids(self._layers):
                os.chown("/proc/self/fd/%d" % descriptor, self.sandbox.identity.uid, self.sandbox.identity.gid)
        finally:
            os.close(descriptor)

    def _enter_user_namespace(self):
        """For the commands that this process will run inside; the user's process enters one of its own."""
        orders = user_process.identity_orders(self.sandbox)
        if orders["map"]:
            layers.become_user_of_namespace(self._layers, orders["uid"], orders["gid"])

    def _limit(self):
        request = self._request
        # One more for init.
        self._warnings += self._prepared.limits.write(
            request["memoryMb"], request["cpuMillis"], request["maxProcesses"] + 1
        )

    def _is_given_up(self):
        try:
            return self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
