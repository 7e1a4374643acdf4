"""How workers are forked: by a library in C (`runtimes/native/fork`), so that no Python runs between the forks, and what the native program
that makes each sandbox is told of all of them (`runtimes/native/src/making.c`)."""

import ctypes
import itertools
import json
import os
import socket
import struct

from . import cgroups, command, native, prefault, process, sandbox, seccomp, syscalls, user_process, waiting

#: As `network` in `fork.h` numbers them: that of the host, one that reaches out, one with loopback only.
HOST, OWN, NONE = range(3)

#: Of what a worker says.
LARGEST_MESSAGE = 65536
#: A group goes a moment after its last process.
_REMOVE_SECONDS = 2
_LOOK_SECONDS = 0.001
_MOST_GROUPS = 3
_LONGEST_NAME = 128
#: Names are not used again: what is left of one that was killed would be in the way of the next.
_TRIALS = itertools.count(1)
_PID = struct.Struct("@i")
_GROUP_FILES = {
    # A process of one thread that moves itself this way waits for nobody. The other file has a lock that is the whole machine's, and to take it
    # means to wait for all processors: 2 ms, now and then 20.
    1: b"tasks",
    2: b"cgroup.procs",
}


class _Forking(ctypes.Structure):
    """`struct forking`."""

    _fields_ = [
        ("program", ctypes.c_int),
        ("facts", ctypes.c_int),
        ("own_pid_namespace", ctypes.c_int),
        ("has_user_namespace", ctypes.c_int),
        ("makes_pid_namespace_inside", ctypes.c_int),
        ("uid", ctypes.c_uint),
        ("gid", ctypes.c_uint),
        ("namespaces", ctypes.c_int),
        ("group_count", ctypes.c_int),
        ("group_parents", ctypes.c_char_p * _MOST_GROUPS),
        ("group_files", ctypes.c_char_p * _MOST_GROUPS),
        ("group_layers", ctypes.c_char_p * _MOST_GROUPS),
        ("drops_capabilities", ctypes.c_int),
        ("has_no_new_privileges", ctypes.c_int),
        ("filter", ctypes.c_char_p),
        ("filter_size", ctypes.c_size_t),
        ("runs", ctypes.c_void_p),
        ("run_count", ctypes.c_size_t),
    ]


class _Run(ctypes.Structure):
    """`struct run`."""

    _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t), ("is_written", ctypes.c_int)]


class _Order(ctypes.Structure):
    """`struct order`."""

    _fields_ = [
        ("network", ctypes.c_int),
        ("control", ctypes.c_int),
        ("teller", ctypes.c_int),
        ("tie", ctypes.c_int),
        ("words", ctypes.c_int),
        ("name", ctypes.c_char * _LONGEST_NAME),
    ]


class Forks:
    """Those of one zygote or shim."""

    def __init__(self, plan, held=None, is_trial=False, is_supervised=False):
        """`held`: the layers, where the plan has none yet. `is_trial`: its workers only try whether everything works. Fails with OSError."""
        held = held or plan.layers
        self._plan = plan
        self._library = ctypes.PyDLL(native.library())
        self._facts = native.memory_file(json.dumps(_facts(plan, held, is_trial, is_supervised)).encode())
        os.set_inheritable(self._facts, False)
        self._own_pid_namespace = -1
        if held.has("pid") and not held.forks_twice():
            self._own_pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        places = sorted(held.places.items())
        self._forking = _Forking(
            program=plan.program.fileno(),
            facts=self._facts,
            own_pid_namespace=self._own_pid_namespace,
            has_user_namespace=held.has("user"),
            makes_pid_namespace_inside=held.forks_twice(),
            uid=os.geteuid(),
            gid=os.getegid(),
            namespaces=held.namespaces(),
            group_count=len(places),
            drops_capabilities=held.has("capabilities"),
            has_no_new_privileges=held.has("no_new_privs"),
        )
        for index, (controller, place) in enumerate(places):
            self._forking.group_parents[index] = os.fsencode(place.parent)
            self._forking.group_files[index] = _GROUP_FILES[place.version]
            self._forking.group_layers[index] = ("cgroup." + controller).encode()
        # A nested user namespace, which the filter forbids, may have to be made yet: then it comes later.
        if held.has("seccomp") and not held.has("user"):
            self._forking.filter, self._forking.filter_size = seccomp.OWN, len(seccomp.OWN)

    def descriptors(self):
        """What forks need of the table of descriptors."""
        return [held for held in (self._plan.program.fileno(), self._facts, self._own_pid_namespace) if held != -1]

    def populate(self, runs):
        """What user's processes have of their memory before anybody asks for them (`prefault.find`)."""
        self._runs = (_Run * len(runs))(*runs)
        self._forking.runs, self._forking.run_count = ctypes.addressof(self._runs), len(runs)

    def fork(self, name, network, control):
        """
        As `os.fork`: 0 in the user's process once its sandbox is made, elsewhere the pid of the first process, or of one that makes it. `control`:
        the worker's end of a SEQPACKET pair. Fails with OSError.
        """
        order, given = self.order(name, network, control)
        pid = self._library.fork_worker(ctypes.byref(self._forking), ctypes.byref(order))
        # In the user's process those are closed already, and others may have their numbers.
        if pid != 0:
            _close_passage(given)
        if pid < 0:
            raise OSError("a worker cannot be forked")
        return pid

    def order(self, name, network, control):
        """The order of a worker, and its descriptors; those behind the first are the caller's to close. Fails with OSError."""
        given = [control.fileno()]
        passage = self._plan.networks.passage() if network == OWN else None
        if passage is not None:
            given += passage
        control_descriptor, teller, tie, words = given + [-1] * (4 - len(given))
        return _Order(network, control_descriptor, teller, tie, words, name.encode()), given

    def serve(self, connection):
        """Forks what is ordered over this SEQPACKET connection (`Server`). Returns in the user's processes, and True at its end."""
        return self._library.serve_forks(ctypes.byref(self._forking), connection.fileno()) != 0

    def close(self):
        for descriptor in (self._facts, self._own_pid_namespace):
            if descriptor != -1:
                os.close(descriptor)


class Server:
    """The process that workers are forked from, as the zygote knows it: a copy of the zygote in which no Python runs any more."""

    def __init__(self, connection, pid, forks):
        self._connection = connection
        self._pid = pid
        self._forks = forks

    def fileno(self):
        return self._connection.fileno()

    def order(self, name, network, control):
        """Fails with OSError."""
        order, given = self._forks.order(name, network, control)
        try:
            rights = struct.pack("%di" % len(given), *given)
            self._connection.sendmsg([bytes(order)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        finally:
            _close_passage(given)

    def ended(self):
        """The pid of the next child that has ended; None when the server itself has."""
        try:
            data = self._connection.recv(_PID.size)
        except OSError:
            data = b""
        return _PID.unpack(data)[0] if data else None

    def close(self):
        self._connection.close()
        os.waitpid(self._pid, 0)


class BecomeServer(BaseException):
    """Unwinds the zygote's stack in the child that forks from then on."""

    def __init__(self, plan, forks, connection):
        super(BecomeServer, self).__init__()
        self.plan = plan
        self.forks = forks
        self.connection = connection


def start_server(plan):
    """A Server; raises BecomeServer in the process that it is. Fails with OSError."""
    forks = Forks(plan)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.detach()
        raise BecomeServer(plan, forks, theirs)
    theirs.close()
    return Server(ours, pid, forks)


def live(plan, forks, connection):
    """The life of that process; returns in the user's processes."""
    process.close_all_but([0, 1, 2, connection.fileno()] + forks.descriptors())
    # Orphans where a worker is the child of one that makes it.
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    command.reset_signals()
    plan.title.set("rookery: fork server %s" % plan.name)
    if plan.resident is None:
        forks.populate(prefault.find(plan))
    if forks.serve(connection):
        os._exit(0)


def try_worker(plan, held, network=HOST):
    """Makes one that ends when everything works. The layer that does not and why, or None. Fails with OSError where it is no layer's fault."""
    name = "probe-%s-%d" % (process.life(), next(_TRIALS))
    forks = Forks(plan, held, is_trial=True)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with ours, theirs:
            pid = forks.fork(name, network, theirs)
            if pid == 0:
                os._exit(0)
            theirs.close()
            data = ours.recv(LARGEST_MESSAGE)
        os.waitpid(pid, 0)
    finally:
        forks.close()
        paths = cgroups.paths_of(held.places, name).values()
        waiting.until(lambda: cgroups.remove(paths), _REMOVE_SECONDS, _LOOK_SECONDS)
    said = read_words(data) or {"failed": "the trial ended without a word", "layer": "mount", "reason": "no reason"}
    if "failed" not in said:
        return None
    if said["layer"] == "":
        raise OSError(said["failed"])
    return said


def read_words(data):
    """The message of a worker; None for what is none."""
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except ValueError:
        return None


def _close_passage(given):
    for descriptor in given[1:]:
        os.close(descriptor)


def _facts(plan, held, is_trial, is_supervised):
    networks = plan.networks
    return {
        "isTrial": is_trial,
        "isSupervised": is_supervised,
        "zygote": plan.name,
        "bootId": plan.boot_id,
        "workersPath": plan.workers,
        "instancesPath": plan.instances,
        "layers": {layer: True for layer in held.held},
        "groups": [
            {"controller": controller, "version": place.version, "parent": place.parent}
            for controller, place in sorted(held.places.items())
        ],
        "mountPoint": plan.root.mount_point,
        "rootPlan": plan.root.facts(),
        "networks": None if networks is None else networks.facts(),
        "networkMissing": None if networks is None else networks.missing,
        "lackOfLimits": held.meaning("user_limits"),
        "setsIds": user_process.sets_ids(held),
        "hasPid": held.has("pid"),
        "hasUser": held.has("user"),
        "hasCapabilities": held.has("capabilities"),
        "hasNoNewPrivs": held.has("no_new_privs"),
        "hasMemoryGroup": held.has("cgroup.memory"),
        "hasPidsGroup": held.has("cgroup.pids"),
        "filter": seccomp.OWN.hex() if held.has("seccomp") else None,
        "root": plan.root.mount_point if held.has("mount") else "",
        "needed": plan.root.needed,
        "runtime": plan.root.runtime,
        "usualPath": sandbox.USUAL_PATH,
        "path": sandbox.path_of_code(),
        "resident": None if plan.resident is None else dict(plan.resident.limits, **plan.resident.identity),
        "logBytes": plan.log_bytes,
        "logFiles": plan.log_files,
    }
