"""Runs one sandbox as a program of the operator's supervisord (see docs/operate/supervisor.md).

The program that supervisord starts is the *shim*: the parent of the sandbox's first process. The end of the
shim ends the sandbox. The end of the sandbox ends the shim, with the same exit code. Like a zygote it never
reads a start request: the first process does, over the connection that the shim has opened.
"""

import fcntl
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import time

from rookery_runtime import unix_path

from . import cgroups, command, etc, forking, frames, layers, lockfile, process, rehearsal, syscalls, waiting, zygote
from . import network as networks
from . import plan as plan_module
from .failure import code_of

#: Time that the code has to end when supervisord stops it. The program's section gives the shim more before
#: supervisord kills it.
_GRACE_MS = 10000
_LARGEST_CONFIG = 1 << 20
_READ_SECONDS = 10
#: Interval for checking that the data directory still exists.
_LOST_LOOK_MS = 10000
#: Time limit for the end of a sandbox without an instance.
_ABANDON_SECONDS = 5
_REMOVE_RETRY_SECONDS = 0.02
_REMOVE_SECONDS = 2
_NETWORKS = {"own": forking.OWN, "none": forking.NONE}
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class BecomeUser(BaseException):
    """Unwinds the shim's stack in the user's process."""

    def __init__(self, plan):
        super(BecomeUser, self).__init__()
        self.plan = plan


def serve(address, program):
    """
    Runs the shim: reports to the control plane at `address`, makes a sandbox and ends with it.

    Never returns. Raises `BecomeUser` in the user's process.
    """
    parent = os.getppid()
    # The shim and its sandbox end with supervisord, however that ends.
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)
    try:
        connection = _connect(address)
        frames.write_message(
            connection,
            {
                "program": program,
                "pid": os.getpid(),
                "supervisorPid": parent,
                "uid": os.geteuid(),
                "python": "%d.%d.%d" % sys.version_info[:3],
            },
        )
        config = frames.read_message(connection, _LARGEST_CONFIG)
    except (OSError, frames.FrameError) as error:
        sys.stderr.write("no service at %s uses this program: %s\n" % (address, error))
        sys.stderr.flush()
        os._exit(1)
    if config is None:
        os._exit(0)
    # Set before the layers are tried, because this process reaps the residue of the trials.
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    plan = _make_plan(config)
    plan.find_networks(config["layers"] is not None and config["layers"]["hasNetworks"])
    ready = _ready(plan)
    rehearsal.prepare(1)
    if hasattr(gc, "freeze"):
        gc.freeze()  # novm
    else:
        gc.collect()
    _Shim(plan, connection, parent).run(ready)


class _Shim:
    def __init__(self, plan, connection, parent):
        self._plan = plan
        #: Connection to the control plane, until the sandbox has it.
        self._connection = connection
        self._parent = parent
        #: When this directory is removed, no service finds the sandbox again.
        self._instances = os.open(plan.instances, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._forks = forking.Forks(plan, is_supervised=True)
        #: The shim's end of the sandbox's socket pair, and the pid of its first process once that exists.
        self._control = None
        self._first = None
        self._instance = None
        #: Reason why the sandbox could not be made.
        self._failure = None
        #: Connections over which init was asked to end.
        self._stops = []
        self._deadline = None
        # Installed before there is anything to clean up.
        self._wake = waiting.Wakeup()
        for number in _STOPS:
            signal.signal(number, self._on_stop)

    def run(self, ready):
        """Serves the sandbox to its end. Sends `ready` to the control plane once the sandbox is made."""
        usual = forking.OWN if self._plan.networks.always else forking.HOST
        self._make(usual)
        if not self._until(lambda: self._first is not None):
            self._tell({"failed": self._failure or "the sandbox cannot be made"})
            self._end()
        self._tell(ready)
        asked = self._read_network()
        if asked is not None:
            self._give(usual if asked["network"] is None else _NETWORKS[asked["network"]], usual)
        else:
            self._abandon()
        self._until(lambda: False)
        self._end()

    def _make(self, network):
        """Makes a sandbox. Raises BecomeUser in its user's process."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            pid = self._forks.fork(self._plan.name, network, theirs)
            if pid == 0:
                # Their descriptors are closed by now, and the numbers may be reused.
                for held in (self._control, theirs, self._connection):
                    held.detach()
                self._wake.detach()
                command.reset_signals()
                for number in _STOPS:
                    signal.signal(number, signal.SIG_DFL)
                raise BecomeUser(self._plan)

    def _give(self, network, usual):
        """
        Transfers the request's connection to the sandbox, which reads the request.

        If the request needs another network, the shim makes a new sandbox in that network.
        """
        if network != usual:
            if not self._plan.layers.has("net"):
                self._refuse("failed_precondition", networks.IMPOSSIBLE)
                return
            self._abandon()
            self._until(lambda: False)
            self._remove()
            self._first = None
            if self._deadline is not None:
                # The shim was asked to end meanwhile.
                return
            try:
                self._make(network)
            except OSError as error:
                self._refuse(code_of(error), "the sandbox cannot be made: %s" % error)
                return
        try:
            zygote.hand_over(self._control, self._connection)
        except OSError:
            self._refuse("internal", self._failure or "the sandbox cannot be made")
            return
        self._connection.close()

    def _until(self, is_so):
        """
        Handles the sandbox's messages and its end until `is_so()`.

        Returns False when the sandbox ends first.
        """
        poll = select.poll()
        poll.register(self._wake.fileno(), select.POLLIN)
        poll.register(self._control.fileno(), select.POLLIN)
        while not is_so():
            if self._reap():
                return False
            for descriptor, _event in poll.poll(self._left_ms()):
                if descriptor == self._wake.fileno():
                    self._wake.clear()
                elif not self._hear():
                    poll.unregister(descriptor)
            if waiting.is_over(self._deadline) or lockfile.is_removed(self._instances):
                self._kill()
        return True

    def _left_ms(self):
        return min(_LOST_LOOK_MS, waiting.left_ms(self._deadline)) if self._deadline is not None else _LOST_LOOK_MS

    def _hear(self):
        """Reads one message of the sandbox. Returns False at the end of the messages."""
        try:
            message = forking.read_words(self._control.recv(forking.LARGEST_MESSAGE))
        except OSError:
            message = None
        if message is None:
            return False
        self._first = message.get("ready", self._first)
        if "failed" in message:
            self._failure = message["failed"]
            self._abandon()
        if "taken" in message:
            self._instance = message["taken"]
            self._plan.title.set("rookery: supervised %s" % self._instance)
        return True

    def _read_network(self):
        """
        Reads the message before the request, which names the network.

        Returns None if the control plane has disconnected, or the sandbox has ended or has to end.
        """
        poll = select.poll()
        for one in (self._wake, self._control, self._connection):
            poll.register(one.fileno(), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _event in poll.poll()]
            if self._deadline is not None or self._control.fileno() in ready:
                return None
            if self._connection.fileno() in ready:
                break
            self._wake.clear()
            if self._reap():
                return None
        try:
            self._connection.settimeout(_READ_SECONDS)
            asked = frames.read_message(self._connection)
            self._connection.settimeout(None)
        except (OSError, frames.FrameError):
            return None
        return asked

    def _tell(self, message):
        try:
            frames.write_message(self._connection, message)
        except OSError:
            # The control plane has disconnected.
            pass

    def _refuse(self, code, message):
        self._tell({"ok": False, "code": code, "message": message})
        self._abandon()

    def _abandon(self, how=socket.SHUT_WR):
        """Closes the pair, so that a sandbox without a start ends. A start that has begun is not undone."""
        if self._control is None:
            return
        try:
            self._control.shutdown(how)
        except OSError:
            pass

    def _reap(self):
        """
        Reaps children.

        Returns True once the sandbox has ended. Without a pid namespace other orphans may remain.
        """
        ended = []
        has_children = waiting.reap(lambda pid, _status: ended.append(pid))
        return not has_children or self._first in ended

    def _on_stop(self, *_ignored):
        if self._instance is None:
            self._abandon(socket.SHUT_RDWR)
            self._deadline = time.monotonic() + _ABANDON_SECONDS
            return
        ended = os.getppid() != self._parent
        cause = "supervisord has ended" if ended else "supervisord stopped it"
        # A second signal stops the sandbox without a grace.
        order = {"op": "stop", "graceMs": 0 if self._stops else _GRACE_MS, "cause": cause}
        try:
            stop = _connect(os.path.join(self._plan.instances, self._instance, "init.sock"))
            self._stops.append(stop)
            frames.write_message(stop, order)
        except OSError:
            self._kill()

    def _kill(self):
        self._deadline = None
        if self._first is not None:
            process.kill(self._first)

    def _end(self):
        self._plan.networks.release()
        directory = os.path.join(self._plan.instances, self._instance) if self._instance else None
        if directory is None or not os.path.isdir(directory):
            # No other process knows the sandbox, so its residue is removed here.
            self._remove()
            os._exit(0)
        os._exit(_exit_code(directory))

    def _remove(self):
        name = self._plan.name
        shutil.rmtree(os.path.join(self._plan.workers, name), ignore_errors=True)
        paths = list(cgroups.paths_of(self._plan.layers.places, name).values())
        waiting.until(lambda: cgroups.remove(paths), _REMOVE_SECONDS, _REMOVE_RETRY_SECONDS)


def _connect(path):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with unix_path.short(path) as place:
        connection.connect(place)
    return connection


def _make_plan(config):
    title = process.Title()
    title.set("rookery: supervised %s" % config["name"])
    with _Locked(config["runDir"]):
        template = etc.EtcTemplate(os.path.join(config["runDir"], "etc"), keep=True)
    return plan_module.Plan(config, title, template, _read_layers(config["layers"]))


class _Locked:
    """A lock for the copy of the host's /etc that shims share. One shim at a time updates the copy."""

    def __init__(self, directory):
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self):
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_ignored):
        os.close(self._descriptor)


def _ready(plan):
    """Returns the facts of this sandbox for the control plane, which passes them to the next shim."""
    held = plan.layers
    return {
        "isolation": held.words(),
        "degraded": held.degraded,
        "privileged": layers.is_privileged(),
        "networkMissing": plan.networks.missing,
        "layers": {
            "needsUser": held.needs_user,
            "held": sorted(held.held),
            "degraded": held.degraded,
            "hasNetworks": plan.networks.missing is None,
            "places": {name: [place.version, place.parent] for name, place in held.places.items()},
        },
    }


def _read_layers(known):
    """Returns the layers that another shim of this supervisord has found, or None for the first shim."""
    if known is None:
        return None
    places = {name: cgroups.Place(version, parent) for name, (version, parent) in known["places"].items()}
    for place in places.values():
        # Another service of this machine may have removed the group when it had no sandbox left.
        os.makedirs(place.parent, exist_ok=True)
    held = layers.Layers(places, known["needsUser"])
    held.held, held.degraded = set(known["held"]), known["degraded"]
    return held


def _exit_code(directory):
    """Returns the exit code of the sandbox, or 137 when the sandbox has not recorded it."""
    told = _read(directory, "exit.json") or (_read(directory, "state.json") or {}).get("exit")
    if told is None:
        return 137
    if told["code"] is not None:
        return told["code"]
    return 128 + getattr(signal, told["signal"] or "", signal.SIGKILL)


def _read(directory, name):
    try:
        with open(os.path.join(directory, name)) as source:
            return json.load(source)
    except (OSError, ValueError):
        return None
