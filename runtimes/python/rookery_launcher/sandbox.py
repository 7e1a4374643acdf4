"""From a spare to an instance: everything between the request and the user's process, in the order in which it must happen."""

import json
import os
import socket

from . import first_process, frames, identity, layers, mounts, network, process, root, syscalls
from .failure import LayerFailure, StartFailure

_READ_REQUEST_SECONDS = 10
_SOCKET_BACKLOG = 64
#: Where a program that speaks the runtime protocol finds its socket.
_INSIDE_SOCKET_DIRECTORY = "/run/rookery"
_SOCKET_NAME = "runtime.sock"
_LISTENER_DESCRIPTOR = 3


class Prepared:
    """What a spare has made before anybody asked for it."""

    def __init__(self, groups, limits, oom_kills):
        self.groups = groups
        self.limits = limits
        self.oom_kills = oom_kills


class Sandbox:
    """One instance as its first process knows it."""

    def __init__(self, request, held):
        self.layers = held
        self.instance_id = request["instanceId"]
        self.command = request["command"]
        self.secret = request["secret"]
        self.env = request["env"]
        self.working_dir = request["workingDir"]
        self.memory_mb = request["memoryMb"]
        self.max_open_files = request["maxOpenFiles"]
        self.max_processes = request["maxProcesses"]
        self.identity = None
        #: With a user namespace the ids are mapped, without one they are set.
        self.switches_user = False

    def forget(self):
        """In the user's own process: nothing of the platform stays within reach of the code."""
        self.secret = None
        self.env = None


def refuse(connection, code, message):
    try:
        frames.write_message(connection, {"ok": False, "code": code, "message": message})
    except OSError:
        pass


def run(plan, prepared, connection, control, pid):
    """Starts the instance that is asked for over `connection` and stays its first process. Never returns."""
    try:
        connection.settimeout(_READ_REQUEST_SECONDS)
        request = frames.read_message(connection)
        connection.settimeout(None)
    except (OSError, frames.FrameError):
        os._exit(1)
    if request is None:
        os._exit(0)
    start = _Start(plan, prepared, request, pid)
    try:
        start.make_directory()
        control.send(json.dumps({"taken": start.sandbox.instance_id}).encode())
        control.close()
        first = start.run(connection)
    except StartFailure as failure:
        start.undo()
        refuse(connection, failure.code, failure.message)
        os._exit(1)
    except (OSError, LayerFailure, KeyError, TypeError, ValueError) as error:
        start.undo()
        refuse(connection, "internal", "the sandbox cannot be started: %s: %s" % (type(error).__name__, error))
        os._exit(1)
    if first is None:
        start.undo()
        os._exit(0)
    first.run()


class _Start:
    def __init__(self, plan, prepared, request, pid):
        self._plan = plan
        self._layers = plan.layers
        self._prepared = prepared
        self._request = request
        self._pid = pid
        self._warnings = []
        self._made = False
        self.sandbox = Sandbox(request, plan.layers)

    def make_directory(self):
        """The instance's directory on the host. The descriptors of it outlive the host's root."""
        self._parent = os.open(self._plan.instances, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.mkdir(self.sandbox.instance_id, 0o700, dir_fd=self._parent)
        except FileExistsError:
            raise StartFailure("an instance %s is here already" % self.sandbox.instance_id, "already_exists")
        self._made = True
        self._directory = os.open(
            self.sandbox.instance_id, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._parent
        )

    def run(self, connection):
        """The first process, ready to run; None when the control plane has given the start up."""
        request, sandbox = self._request, self.sandbox
        self._write_state()
        sandbox.identity = identity.find(request["user"])
        sandbox.switches_user = not self._layers.has("user") and os.geteuid() == 0
        self._warn_about_user()
        inside, listener = self._listen()
        control = self._bind(self._directory, "init.sock")
        first = first_process.FirstProcess(self._plan, sandbox, self._directory, control, self._prepared.oom_kills)
        self._isolate_network()
        self._mount()
        if inside is not None:
            sandbox.env = dict(
                sandbox.env,
                ROOKERY_RUNTIME_SOCKET=inside,
                ROOKERY_RUNTIME_FD=str(_LISTENER_DESCRIPTOR),
                ROOKERY_RUNTIME_SECRET=sandbox.secret,
            )
        self._become_user_of_namespace()
        layers.confine(self._layers)
        # Nobody inside may look into this process, whoever they are.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        if self._is_given_up(connection):
            return None
        # Late, so that a small share of the cpu does not slow the making of the sandbox; one more for this process.
        self._warnings += self._prepared.limits.write(
            request["memoryMb"], request["cpuMillis"], request["maxProcesses"] + 1
        )
        first.start(listener)
        answer = {
            "ok": True,
            "data": self._state,
            "uid": sandbox.identity.uid,
            "warnings": self._warnings,
        }
        try:
            frames.write_message(connection, answer)
        except OSError:
            first.kill_all()
            return None
        first.watch(connection)
        return first

    def undo(self):
        """Removes what `make_directory` and what followed made, also when the host's root has gone already."""
        if not self._made:
            return
        for name in os.listdir(self._directory):
            if name == "sock":
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._directory)
                for entry in os.listdir(inner):
                    os.unlink(entry, dir_fd=inner)
                os.rmdir(name, dir_fd=self._directory)
            else:
                os.unlink(name, dir_fd=self._directory)
        os.rmdir(self.sandbox.instance_id, dir_fd=self._parent)

    def _write_state(self):
        """What another control plane needs to find, judge and remove this sandbox, before there is more to remove."""
        exec_kind = self.sandbox.command["kind"] == "exec"
        self._state = {
            "instanceId": self.sandbox.instance_id,
            "pid": self._pid,
            "startTime": process.start_time("self"),
            "bootId": self._plan.boot_id,
            "groups": self._prepared.groups,
            "groupVersions": {name: place.version for name, place in self._layers.places.items()},
            "socket": "sock/" + _SOCKET_NAME if exec_kind else _SOCKET_NAME,
            "launcher": self._plan.name,
        }
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open("state.json", flags, 0o600, dir_fd=self._directory)
        os.write(descriptor, json.dumps(self._state).encode())
        os.close(descriptor)

    def _warn_about_user(self):
        asked = self.sandbox.identity
        if not self._layers.has("user") and not self.sandbox.switches_user and asked.uid != os.geteuid():
            self._warnings.append(
                "the code runs as uid %d and not as %s (uid %d): the server is not root here"
                % (os.geteuid(), asked.name, asked.uid)
            )

    def _listen(self):
        """`(path inside or None, listener)` of the runtime's socket."""
        if self.sandbox.command["kind"] != "exec":
            return None, self._bind(self._directory, _SOCKET_NAME)
        os.mkdir("sock", 0o700, dir_fd=self._directory)
        directory = os.open("sock", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._directory)
        listener = self._bind(directory, _SOCKET_NAME)
        if self.sandbox.switches_user:
            # The program may put a socket of its own there.
            owner = self.sandbox.identity
            os.fchown(directory, owner.uid, owner.gid)
            os.chown(_SOCKET_NAME, owner.uid, owner.gid, dir_fd=directory)
        self._socket_directory = directory
        if self._layers.has("mount"):
            return _INSIDE_SOCKET_DIRECTORY + "/" + _SOCKET_NAME, listener
        path = os.path.join(self._plan.instances, self.sandbox.instance_id, "sock", _SOCKET_NAME)
        return path, listener

    @staticmethod
    def _bind(directory, name):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Through the descriptor, so that the path is short enough for any data directory.
        listener.bind("/proc/self/fd/%d/%s" % (directory, name))
        os.chmod(name, 0o600, dir_fd=directory)
        listener.listen(_SOCKET_BACKLOG)
        return listener

    def _isolate_network(self):
        if self._request["network"] != "none":
            return
        if not self._layers.has("net"):
            raise StartFailure("network none is not possible on this machine: network namespaces are not available")
        network.isolate()

    def _mount(self):
        request = self._request
        wanted = request["mounts"]
        if not self._layers.has("mount"):
            self._accept_same_paths(wanted)
            return
        root.set_size(self._plan.root, max(request["memoryMb"], 1))
        policy = request["policy"]
        inside = self._plan.root.mount_point
        for item in wanted:
            source = mounts.open_source(item["source"], policy["dataDir"], policy["dockerSocket"])
            mounts.mount_source(source, item["target"], item["readonly"], inside)
            os.close(source)
        if self.sandbox.command["kind"] == "exec":
            mounts.mount_source(self._socket_directory, _INSIDE_SOCKET_DIRECTORY, False, inside)
        self._make_home(inside)
        root.enter(self._plan.root)

    def _accept_same_paths(self, wanted):
        """Without a mount namespace a mount can only be where it already is."""
        policy = self._request["policy"]
        for item in wanted:
            source = mounts.open_source(item["source"], policy["dataDir"], policy["dockerSocket"])
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
            path = "/proc/self/fd/%d" % descriptor
            if os.fstat(descriptor).st_dev == os.stat(inside).st_dev and self.sandbox.switches_user:
                os.chown(path, self.sandbox.identity.uid, self.sandbox.identity.gid)
        finally:
            os.close(descriptor)

    def _become_user_of_namespace(self):
        """In a user namespace the first one maps root, which the mounts needed; any other user is one namespace further in."""
        asked = self.sandbox.identity
        if self._layers.has("user") and (asked.uid, asked.gid) != (0, 0):
            layers.enter_user_namespace(0, 0, asked.uid, asked.gid)

    @staticmethod
    def _is_given_up(connection):
        try:
            return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
