"""A sandbox that waits for its instance: in its namespaces, groups and root, with its user's process forked, and nobody's code
has run in it. Everything that does not depend on the request is done here, before anybody waits for it."""

import gc
import json
import os
import signal
import socket
import struct
import traceback

from . import cgroups, directory, init, layers, process, sandbox, syscalls, user_limits, user_process
from .failure import LayerFailure, code_of

#: Bytes of a message between zygote and worker.
LARGEST_MESSAGE = 4096


def live(plan, control, name):
    """
    The life of the process that the zygote has forked, to its end; raises `BecomeUser` in the user's process.
    `control` is its end of a SEQPACKET pair.
    """
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        try:
            prepared = prepare(plan, name, control)
        except (LayerFailure, OSError) as failure:
            _fail(control, code_of(failure), "the sandbox cannot be made: %s" % failure)
        control.send(json.dumps({"ready": prepared.state["pid"]}).encode())
        connection = _take(control)
        if connection is not None:
            sandbox.run(plan, prepared, connection, control)
        prepared.directory.remove()
        os._exit(0)
    except user_process.BecomeUser:
        raise
    except BaseException:
        traceback.print_exc()
        os._exit(1)


class Prepared:
    """What a worker has made before anybody asked for it."""

    def __init__(self, place, state, limits, first, passage, warnings):
        #: On the host.
        self.directory = place
        #: What `state.json` tells.
        self.state = state
        #: The open limit files of its groups.
        self.limits = limits
        self.first = first
        #: Of its network, where a program passes on for it (`user_network`).
        self.passage = passage
        #: What this one lacks, as sentences.
        self.warnings = warnings


def prepare(plan, name, control, *others):
    """
    Makes this process the parent of a sandbox's init and ends it; returns in init, raises `BecomeUser` in
    the user's. The sockets stay open in init only. Fails with LayerFailure or OSError.
    """
    process.close_all_but([0, 1, 2, control.fileno()] + [one.fileno() for one in others])
    passage = plan.networks.passage() if plan.networks.always else None
    layers.enter(plan.layers, name)
    offer = user_limits.Offer() if plan.layers.has("user_limits") else None
    # The first process of the pid namespace is the next child. This one has done its part.
    child = os.fork()
    if child != 0:
        if offer is not None:
            offer.make(child)
        os._exit(0)
    syscalls.set_name("rookery: worker")
    if not plan.layers.has("pid"):
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    place = directory.InstanceDirectory(plan, name)
    address = None
    if plan.networks.always:
        address = layers.attempt("net", plan.networks.enter, passage)
    limits_namespace, warnings = None, []
    if offer is not None:
        try:
            limits_namespace = offer.take()
        except OSError as error:
            # An operator may forbid user namespaces later than the layers were found.
            warnings.append(layers.sentence("user_limits", error.strerror or error))
    state = {
        # As the host counts: its /proc is still the one in sight.
        "pid": int(os.readlink("/proc/self")),
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
        "lacks": ["user_limits"] if warnings else [],
    }
    place.write("state.json", state)
    place.reserve("exit.json")
    # Before the root is made: afterwards the groups are out of reach.
    limits = cgroups.LimitFiles(plan.layers.places, name)
    oom_kills = cgroups.oom_kills_file(plan.layers.places, name)
    layers.prepare_root(plan.layers, plan.root)
    layers.give_up_privileges(plan.layers)
    if hasattr(gc, "freeze"):
        gc.freeze()  # novm
    first = init.Init(plan, place, oom_kills, limits_namespace)
    first.fork_user(control, *others)
    return Prepared(place, state, limits, first, passage, warnings)


def _fail(control, code, message):
    """Tells why, also the control plane when it already waits for this worker."""
    control.send(json.dumps({"failed": message}).encode())
    connection = _take(control)
    if connection is not None:
        sandbox.refuse(connection, code, message)
    os._exit(1)


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
