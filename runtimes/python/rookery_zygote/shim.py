"""One sandbox as a program of the operator's supervisord (see docs/supervisor.md).

The program that supervisord starts is the *shim*: the parent of the sandbox's init. The end of the shim ends the sandbox,
and the end of the sandbox ends the shim, with the same exit code. Like a zygote it never reads a start request: init
does, over the connection that the shim has opened.
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
import traceback

from rookery_runtime import unix_path

from . import cgroups, etc, frames, layers, process, rehearsal, worker, syscalls, user_process, waiting
from . import plan as plan_module
from .failure import LayerFailure, StartFailure, code_of

#: What the code may take to end when supervisord asks for it. The program's section gives it more before it kills.
_GRACE_MS = 10000
_LARGEST_CONFIG = 1 << 20
_READ_SECONDS = 10
#: How long a sandbox without an instance may take to go.
_ABANDON_SECONDS = 5
_REMOVE_RETRY_SECONDS = 0.02
_REMOVE_SECONDS = 2
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class BecomeSandbox(BaseException):
    """Unwinds the shim's stack in its child."""

    def __init__(self, plan, ready, control, connection):
        super(BecomeSandbox, self).__init__()
        self.plan = plan
        #: For the control plane, once the sandbox is made.
        self.ready = ready
        self.control = control
        self.connection = connection


def serve(address, program):
    """
    The life of the shim: reports to the control plane at `address`, makes a sandbox and ends with it. Never returns; raises
    `BecomeSandbox` in the child that goes on as the sandbox.
    """
    parent = os.getppid()
    # supervisord owns the life: nothing of it outlives supervisord, however that ends.
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
        sys.stderr.write("nobody at %s has a use for this program: %s\n" % (address, error))
        sys.stderr.flush()
        os._exit(1)
    if config is None:
        os._exit(0)
    plan = _make_plan(config)
    plan.find_networks(config["layers"] is not None and config["layers"]["hasNetworks"])
    ready = _ready(plan)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    rehearsal.prepare(1)
    if hasattr(gc, "freeze"):
        gc.freeze()  # novm
    else:
        gc.collect()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shim = _Shim(plan, ours, parent)
    maker = layers.fork_init(plan.layers)
    if maker == 0:
        shim.abandon()
        raise BecomeSandbox(plan, ready, theirs, connection)
    theirs.close()
    connection.close()
    shim.run(maker)


def live(plan, ready, control, connection):
    """The life of the sandbox, to its end; raises `BecomeUser` in the user's process."""
    try:
        try:
            made = worker.prepare(plan, plan.name, control, connection)
        except (LayerFailure, OSError) as failure:
            frames.write_message(connection, {"failed": "the sandbox cannot be made: %s" % failure})
            os._exit(1)
        control.send(json.dumps({"ready": made.state["pid"]}).encode())
        # From its answer on, the shim is the parent of this process.
        if control.recv(16):
            frames.write_message(connection, ready)
            asked = _wait_for_request(connection, control)
            if asked is not None:
                _become(made, asked, control, connection)
    except user_process.BecomeUser:
        raise
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _become(made, asked, control, connection):
    """From here on the end of the shim is the end of this process: the native program sees to that. Returns when it cannot be done."""
    try:
        if asked["network"] is not None:
            made.enter_network(asked["network"])
        made.become(control, connection)
    except StartFailure as failure:
        worker.refuse(connection, failure.code, failure.message)
    except OSError as failure:
        worker.refuse(connection, code_of(failure), "the sandbox cannot be made: %s" % failure)


class _Shim:
    def __init__(self, plan, control, parent):
        self._plan = plan
        self._control = control
        self._parent = parent
        self._first = None
        self._instance = None
        #: Over which init was asked to end.
        self._stops = []
        self._deadline = None
        # Before there is anything that would be left behind.
        self._wake = waiting.Wakeup()
        for number in _STOPS:
            signal.signal(number, self._on_stop)

    def abandon(self):
        """In the child."""
        self._wake.close()
        for number in _STOPS + (signal.SIGCHLD,):
            signal.signal(number, signal.SIG_DFL)
        self._control.close()

    def run(self, maker):
        if self._plan.layers.forks_twice():
            # It has forked init, and ends.
            os.waitpid(maker, 0)
        try:
            self._control.send(b"go")
        except OSError:
            # There is none: it could not be made, and has reported the reason to the control plane.
            pass
        poll = select.poll()
        poll.register(self._wake.fileno(), select.POLLIN)
        poll.register(self._control.fileno(), select.POLLIN)
        while not self._reap():
            for descriptor, _event in poll.poll(waiting.left_ms(self._deadline)):
                if descriptor == self._wake.fileno():
                    self._wake.clear()
                elif not self._hear():
                    poll.unregister(descriptor)
            if waiting.is_over(self._deadline):
                self._kill()
        self._end()

    def _hear(self):
        """False at the end: the start is done, or there was none."""
        try:
            data = self._control.recv(worker.LARGEST_MESSAGE)
        except OSError:
            data = b""
        if not data:
            return False
        message = json.loads(data.decode())
        self._first = message.get("ready", self._first)
        if "taken" in message:
            self._instance = message["taken"]
            self._plan.title.set("rookery: supervised %s" % self._instance)
        return True

    def _reap(self):
        """True once init has ended. Others may be left to this one where there is no pid namespace."""
        ended = []
        has_children = waiting.reap(lambda pid, _status: ended.append(pid))
        return not has_children or self._first in ended or (self._first is None and bool(ended))

    def _on_stop(self, *_ignored):
        if self._instance is None:
            # The sandbox sees that the pair is closed, and goes.
            try:
                self._control.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self._deadline = time.monotonic() + _ABANDON_SECONDS
            return
        ended = os.getppid() != self._parent
        cause = "supervisord has ended" if ended else "supervisord stopped it"
        # A second signal does not wait.
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
            # Nobody else knows of it.
            shutil.rmtree(os.path.join(self._plan.workers, self._plan.name), ignore_errors=True)
            self._remove_groups()
            os._exit(0)
        os._exit(_exit_code(directory))

    def _remove_groups(self):
        paths = list(cgroups.paths_of(self._plan.layers.places, self._plan.name).values())
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
    """Shims share one copy of the host's /etc; one at a time brings it up to date."""

    def __init__(self, directory):
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self):
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_ignored):
        os.close(self._descriptor)


def _ready(plan):
    """What the control plane must know of this sandbox, and gives to the next one."""
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
    """The layers as another shim of this supervisord found them; None when this is the first."""
    if known is None:
        return None
    places = {name: cgroups.Place(version, parent) for name, (version, parent) in known["places"].items()}
    for place in places.values():
        # Another service of this machine may have removed it when it had no sandbox left.
        os.makedirs(place.parent, exist_ok=True)
    held = layers.Layers(places, known["needsUser"])
    held.held, held.degraded = set(known["held"]), known["degraded"]
    return held


def _wait_for_request(connection, control):
    """What comes before the request: the network that it asks for. None when the control plane or the shim has gone first."""
    poll = select.poll()
    for one in (connection, control):
        poll.register(one.fileno(), select.POLLIN)
    poll.poll()
    if _has_ended(control):
        return None
    try:
        connection.settimeout(_READ_SECONDS)
        asked = frames.read_message(connection)
        connection.settimeout(None)
    except (OSError, frames.FrameError):
        return None
    return asked


def _has_ended(one):
    try:
        return one.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _exit_code(directory):
    """As the sandbox ended; 137 when it could not say how."""
    try:
        with open(os.path.join(directory, "exit.json")) as source:
            told = json.load(source)
    except (OSError, ValueError):
        return 137
    if told["code"] is not None:
        return told["code"]
    return 128 + getattr(signal, told["signal"] or "", signal.SIGKILL)
