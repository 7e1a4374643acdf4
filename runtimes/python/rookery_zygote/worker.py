"""A sandbox that waits for its instance: in its namespaces, groups and root, with its user's process forked, and nobody's code
has run in it. Everything that does not depend on the request is done here, before anybody waits for it; the rest does the native program
(`runtimes/native`) that this process becomes."""

import gc
import json
import os
import signal
import socket
import struct
import traceback

from . import cgroups, directory, frames, init, layers, network, process, sandbox, seccomp, syscalls, user_limits, user_process
from .failure import LayerFailure, StartFailure, code_of

#: Bytes of a message between zygote and worker.
LARGEST_MESSAGE = 4096


def live(plan, control, name, asked):
    """
    The life of the process that the zygote has forked, to its end; raises `BecomeUser` in the user's process.
    `control` is its end of a SEQPACKET pair; `asked`: as `Worker.enter_network`, None for the usual one.
    """
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        try:
            made = prepare(plan, name, control)
            if asked is not None:
                made.enter_network(asked)
            made.become(control)
        except StartFailure as failure:
            # As it was asked it cannot be done, which says nothing of other workers.
            _refuse(control, failure.code, failure.message)
        except (LayerFailure, OSError) as failure:
            _fail(control, code_of(failure), "the sandbox cannot be made: %s" % failure)
    except user_process.BecomeUser:
        raise
    except BaseException:
        traceback.print_exc()
    os._exit(1)


class Worker:
    """What was made before anybody asked for it."""

    def __init__(self, plan, name, place, state, first, passage, others):
        self._plan = plan
        self._name = name
        #: On the host.
        self._directory = place
        #: What `state.json` tells.
        self.state = state
        self.first = first
        #: Of its network, where a program passes on for it (`user_network`).
        self._passage = passage
        #: Sockets that the user's process must not have.
        self._others = others
        self._is_isolated = False
        #: The open limit files of its groups.
        self.limits = []
        #: What this one lacks, as sentences.
        self.warnings = []

    @property
    def _root(self):
        """Where its root is in sight; empty when it has none."""
        return self._plan.root.mount_point if self._plan.layers.has("mount") else ""

    def fork_user(self):
        self.first.fork_user(self._root, *self._others)

    def enter_network(self, asked):
        """Into another network than the usual one: `own` reaches out, `none` is loopback. Fails with StartFailure or OSError."""
        if asked == "own":
            self.state.update(address=network.enter(self._plan.networks.range), hasOwnNetwork=True)
        else:
            self._isolate()
        self._directory.write("state.json", self.state)
        # The user's process was forked in another network.
        self.fork_user()

    def _isolate(self):
        if not self._plan.layers.has("net"):
            raise StartFailure(
                "a network of its own is not possible on this machine: network namespaces are not available"
            )
        network.isolate()
        self._is_isolated = True
        self.state.update(address=None, hasOwnNetwork=False)
        if self._passage is not None:
            self._passage.end()
            self._passage = None

    def become(self, control, connection=None):
        """
        This process becomes the native program, which waits for its instance, starts it and is its init. `connection`: over which it is asked;
        None: it comes over `control`. Never returns; fails with OSError.
        """
        plan, held, resident = self._plan, self._plan.layers, self._plan.resident
        facts = dict(
            self.first.facts,
            name=self._name,
            pid=self.state["pid"],
            # As text: it is passed on.
            state=json.dumps(self.state),
            warnings=self.warnings,
            isSupervised=connection is not None,
            isIsolated=self._is_isolated,
            hasOwnNetwork=self.state["hasOwnNetwork"],
            networkMissing=plan.networks.missing,
            setsIds=user_process.sets_ids(held),
            hasPid=held.has("pid"),
            hasUser=held.has("user"),
            hasCapabilities=held.has("capabilities"),
            hasNoNewPrivs=held.has("no_new_privs"),
            hasMemoryGroup=held.has("cgroup.memory"),
            hasPidsGroup=held.has("cgroup.pids"),
            filter=seccomp.OWN.hex() if held.has("seccomp") else None,
            root=self._root,
            needed=plan.root.needed,
            runtime=plan.root.runtime,
            instancesPath=plan.instances,
            usualPath=sandbox.USUAL_PATH,
            path=sandbox.path_of_code(),
            resident=None if resident is None else dict(resident.limits, **resident.identity),
            logBytes=plan.log_bytes,
            logFiles=plan.log_files,
        )
        descriptors = dict(
            self.first.descriptors,
            control=control.fileno(),
            connection=-1 if connection is None else connection.fileno(),
            networkTie=-1,
            networkWords=-1,
        )
        if self._passage is not None:
            descriptors.update(self._passage.descriptors)
        plan.program.become(facts, descriptors, self.limits)


def prepare(plan, name, control, *others):
    """
    The Worker that this process, a child of `layers.fork_init`, has become, or a child of it where it has to be one; raises `BecomeUser` in
    the user's. The sockets stay open in init only. Fails with LayerFailure or OSError.
    """
    process.close_all_but([0, 1, 2, plan.program.fileno(), control.fileno()] + [one.fileno() for one in others])
    passage = plan.networks.passage() if plan.networks.always else None
    layers.enter(plan.layers, name)
    if plan.layers.forks_twice() and os.fork() != 0:
        # The first process of the pid namespace is the child. This one has done its part.
        os._exit(0)
    syscalls.set_name("rookery: worker")
    if not plan.layers.has("pid"):
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    place = directory.InstanceDirectory(plan, name)
    address = None
    if plan.networks.always:
        address = layers.attempt("net", plan.networks.enter, passage)
    # As the host counts: its /proc is still the one in sight.
    pid = int(os.readlink("/proc/self"))
    # Before the root is made: afterwards the groups are out of reach.
    limits = cgroups.open_limit_files(plan.layers.places, name)
    oom_kills = cgroups.oom_kills_file(plan.layers.places, name)
    layers.prepare_root(plan.layers, plan.root)
    if hasattr(gc, "freeze"):
        gc.freeze()  # novm
    offer = user_limits.Offer(pid) if plan.layers.has("user_limits") else None
    if offer is None:
        layers.give_up_privileges(plan.layers)
    first = init.Init(plan, place, oom_kills, offer)
    state = {
        "pid": pid,
        "startTime": process.start_time("self"),
        "bootId": plan.boot_id,
        "groups": cgroups.paths_of(plan.layers.places, name),
        "groupVersions": {controller: held.version for controller, held in plan.layers.places.items()},
        # The old name of a zygote stays on the disk: earlier and later versions read this file.
        "launcher": plan.name,
        # On the host, in a network of its own; null in the host's, where there is only loopback, and where only the inside leads there.
        "address": address,
        # It reaches out of a network of its own.
        "hasOwnNetwork": plan.networks.always,
        # Layers that the others of its zygote have.
        "lacks": [],
    }
    made = Worker(plan, name, place, state, first, passage, (control,) + others)
    made.limits = limits
    made.fork_user()
    reason = first.take_user_limits()
    if reason is not None:
        # An operator may forbid user namespaces later than the layers were found.
        made.warnings.append(layers.sentence("user_limits", reason))
        state["lacks"].append("user_limits")
        layers.give_up_privileges(plan.layers)
        made.fork_user()
    place.write("state.json", state)
    place.reserve("exit.json")
    return made


def _fail(control, code, message):
    """Tells why, also the control plane when it already waits for this worker."""
    control.send(json.dumps({"failed": message}).encode())
    _refuse(control, code, message)


def _refuse(control, code, message):
    connection = _take(control)
    if connection is not None:
        refuse(connection, code, message)


def refuse(connection, code, message):
    try:
        frames.write_message(connection, {"ok": False, "code": code, "message": message})
    except OSError:
        # Nobody waits for it any more.
        pass


def _take(control):
    """The connection of the control plane that wants this worker; None when the zygote ended or gave it up."""
    data, ancillary, _flags, _address = control.recvmsg(16, socket.CMSG_SPACE(4))
    if not data:
        return None
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            (descriptor,) = struct.unpack("i", content[:4])
            return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptor)
    return None


def hand_over(control, connection):
    """The zygote's side of `_take`. Fails with OSError when the worker is no more."""
    control.sendmsg([b"s"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", connection.fileno()))])
