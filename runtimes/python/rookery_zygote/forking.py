"""Forks workers with a C library (`runtimes/native/fork`), so that no Python code runs between the forks.

Also makes the facts for the native program that creates each sandbox (`runtimes/native/src/making.c`).
"""

import ctypes
import itertools
import json
import os
import socket
import struct

from . import cgroups, command, native, prefault, process, sandbox, seccomp, syscalls, user_process, waiting

#: Values of `network` in `fork.h`: the host's network, an own network with access to the outside, loopback
#: only.
HOST, OWN, NONE = range(3)

#: Size limit of a worker's message.
LARGEST_MESSAGE = 65536
#: Time limit for the removal of control groups. A group becomes removable a moment after its last process
#: ends.
_REMOVE_SECONDS = 2
_LOOK_SECONDS = 0.001
_MOST_GROUPS = 3
_LONGEST_NAME = 128
#: Numbers for names, which are never reused: residue of a killed trial would be in the way of the next one.
_TRIALS = itertools.count(1)
_PID = struct.Struct("@i")
_GROUP_FILES = {
    # A process with a single thread that moves itself through this file waits for no lock. The other file
    # takes a lock of the whole machine, which waits for all processors: 2 ms, sometimes 20.
    1: b"tasks",
    2: b"cgroup.procs",
}


class _Forking(ctypes.Structure):
    """Mirrors `struct forking`."""

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
    """Mirrors `struct run`."""

    _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t), ("is_written", ctypes.c_int)]


class _Order(ctypes.Structure):
    """Mirrors `struct order`."""

    _fields_ = [
        ("network", ctypes.c_int),
        ("control", ctypes.c_int),
        ("teller", ctypes.c_int),
        ("tie", ctypes.c_int),
        ("words", ctypes.c_int),
        ("name", ctypes.c_char * _LONGEST_NAME),
    ]


class _Layout(ctypes.Structure):
    """Mirrors `struct layout`."""

    _fields_ = [("name", ctypes.c_char * 48), ("offset", ctypes.c_uint), ("size", ctypes.c_uint)]


def load_library():
    """
    Loads the library that forks workers.

    Raises OSError, also if its structures differ from those above.
    """
    path = native.library()
    library = ctypes.PyDLL(path)
    check_layout(path, library, {"forking": _Forking, "run": _Run, "order": _Order})
    return library


def check_layout(path, library, mirrors):
    """Raises OSError if the library's layout of a structure differs from its mirror."""
    expected = [("HOST_NETWORK", HOST, 0), ("OWN_NETWORK", OWN, 0), ("NO_NETWORK", NONE, 0)]
    for name, mirror in mirrors.items():
        expected.append((name, 0, ctypes.sizeof(mirror)))
        for member, _kind in mirror._fields_:
            field = getattr(mirror, member)
            expected.append(("%s.%s" % (name, member), field.offset, field.size))
    found = []
    lines = ctypes.cast(library.fork_layout, ctypes.POINTER(_Layout))
    while lines[len(found)].name:
        line = lines[len(found)]
        found.append((line.name.decode(), line.offset, line.size))
    wrong = sorted(set(found) ^ set(expected))
    if wrong:
        raise OSError("%s and rookery_zygote/forking.py differ in %s: build runtimes/native" % (path, wrong[0][0]))


class Forks:
    """Forks the workers of a zygote or shim."""

    def __init__(self, plan, held=None, is_trial=False, is_supervised=False):
        """
        Prepares the data for all forks. Raises OSError.

        `held` replaces the layers of a plan that has none yet. Workers of a trial (`is_trial`) only test all
        layers.
        """
        held = held or plan.layers
        self._plan = plan
        self._library = load_library()
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
        # The filter forbids a nested user namespace. If one may still have to be created, the filter is
        # installed later.
        if held.has("seccomp") and not held.has("user"):
            self._forking.filter, self._forking.filter_size = seccomp.OWN, len(seccomp.OWN)

    def descriptors(self):
        """Returns the descriptors that forks need."""
        return [held for held in (self._plan.program.fileno(), self._facts, self._own_pid_namespace) if held != -1]

    def populate(self, runs):
        """Sets the memory that user's processes populate before their orders arrive (`prefault.find`)."""
        self._runs = (_Run * len(runs))(*runs)
        self._forking.runs, self._forking.run_count = ctypes.addressof(self._runs), len(runs)

    def fork(self, name, network, control):
        """
        Forks a worker. Returns 0 in the user's process once its sandbox exists.

        In the caller, returns the pid of the sandbox's first process, or of its parent. `control` is the
        worker's end of a SEQPACKET pair. Raises OSError.
        """
        order, given = self.order(name, network, control)
        pid = self._library.fork_worker(ctypes.byref(self._forking), ctypes.byref(order))
        # In the user's process these are closed already, and their numbers may be reused.
        if pid != 0:
            _close_passage(given)
        if pid < 0:
            raise OSError("a worker cannot be forked")
        return pid

    def order(self, name, network, control):
        """
        Returns the order for a worker, and its descriptors. Raises OSError.

        The caller closes the descriptors after the first one.
        """
        given = [control.fileno()]
        passage = self._plan.networks.passage() if network == OWN else None
        if passage is not None:
            given += passage
        control_descriptor, teller, tie, words = given + [-1] * (4 - len(given))
        return _Order(network, control_descriptor, teller, tie, words, name.encode()), given

    def serve(self, connection):
        """
        Forks as ordered over this SEQPACKET connection (`Server`).

        Returns False in user's processes, True at its end.
        """
        return self._library.serve_forks(ctypes.byref(self._forking), connection.fileno()) != 0

    def close(self):
        for descriptor in (self._facts, self._own_pid_namespace):
            if descriptor != -1:
                os.close(descriptor)


class Server:
    """The zygote's handle of the fork server: a copy of the zygote in which no Python runs any more."""

    def __init__(self, connection, pid, forks):
        self._connection = connection
        self._pid = pid
        self._forks = forks

    def fileno(self):
        return self._connection.fileno()

    def order(self, name, network, control):
        """Sends an order to fork a worker. Raises OSError."""
        order, given = self._forks.order(name, network, control)
        try:
            rights = struct.pack("%di" % len(given), *given)
            self._connection.sendmsg([bytes(order)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        finally:
            _close_passage(given)

    def ended(self):
        """Returns the pid of the next child that has ended, or None when the server itself has ended."""
        try:
            data = self._connection.recv(_PID.size)
        except OSError:
            data = b""
        return _PID.unpack(data)[0] if data else None

    def close(self):
        self._connection.close()
        os.waitpid(self._pid, 0)


class BecomeServer(BaseException):
    """Unwinds the zygote's stack in the child that becomes the fork server."""

    def __init__(self, plan, forks, connection):
        super(BecomeServer, self).__init__()
        self.plan = plan
        self.forks = forks
        self.connection = connection


def start_server(plan):
    """Starts the fork server and returns its Server. Raises BecomeServer in the new process, and OSError."""
    forks = Forks(plan)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.detach()
        raise BecomeServer(plan, forks, theirs)
    theirs.close()
    return Server(ours, pid, forks)


def live(plan, forks, connection):
    """Runs the fork server. Returns in the user's processes."""
    process.close_all_but([0, 1, 2, connection.fileno()] + forks.descriptors())
    # Adopts orphans: a worker may be the child of a process that only creates it.
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    command.reset_signals()
    plan.title.set("rookery: fork server %s" % plan.name)
    if plan.resident is None:
        forks.populate(prefault.find(plan))
    if forks.serve(connection):
        os._exit(0)


def try_worker(plan, held, network=HOST):
    """
    Runs a trial worker, which ends at once. Returns the message with the failed layer and the reason, or
    None.

    Raises OSError if the failure is not that of a layer.
    """
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
    """Returns the message of a worker, or None if it is not JSON."""
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
        "filterOfAccounts": seccomp.OF_ACCOUNTS.hex() if held.has("seccomp") else None,
        "root": plan.root.mount_point if held.has("mount") else "",
        "needed": plan.root.needed,
        "runtime": plan.root.runtime,
        "usualPath": sandbox.USUAL_PATH,
        "path": sandbox.path_of_code(),
        "resident": None if plan.resident is None else dict(plan.resident.limits, **plan.resident.identity),
        "logBytes": plan.log_bytes,
        "logFiles": plan.log_files,
    }
