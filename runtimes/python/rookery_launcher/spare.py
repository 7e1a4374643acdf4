"""A sandbox that waits for its instance: forked, in its namespaces, groups and root, and nobody's code has run in it."""

import gc
import json
import os
import signal
import socket
import struct
import traceback

from . import cgroups, layers, process, sandbox, syscalls, user_process
from .failure import LayerFailure

#: Bytes of a message between launcher and spare.
LARGEST_MESSAGE = 4096


def live(plan, control, name):
    """The life of the process that the launcher has forked. Ends it, or raises `RunPython` in the user's. `control` is its end of a SEQPACKET pair."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            prepared = _prepare(plan, control, name)
        except LayerFailure as failure:
            _fail(control, "the sandbox cannot be made: %s" % failure)
        except OSError as error:
            _fail(control, "the sandbox cannot be made: %s" % error)
        pid = int(os.readlink("/proc/self"))
        control.send(json.dumps({"ready": pid, "startTime": process.start_time("self")}).encode())
        connection = _take(control)
        if connection is None:
            os._exit(0)
        sandbox.run(plan, prepared, connection, control, pid)
    except user_process.RunPython:
        # The user's process: it goes on from the bottom of the stack.
        raise
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(1)


def _prepare(plan, control, name):
    process.close_all_but([0, 1, 2, control.fileno()])
    layers.enter(plan.layers, name)
    # The first process of the pid namespace is the next child. This one has done its part.
    if os.fork() != 0:
        os._exit(0)
    plan.title.set("rookery: spare")
    if not plan.layers.has("pid"):
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    # Before the root is made: afterwards the groups are out of reach.
    limits = cgroups.LimitFiles(plan.layers.places, name)
    oom_kills = cgroups.oom_kills_file(plan.layers.places, name)
    layers.prepare_root(plan.layers, plan.root)
    if hasattr(gc, "freeze"):
        gc.freeze()
    return sandbox.Prepared(cgroups.paths_of(plan.layers.places, name), limits, oom_kills)


def _fail(control, message):
    """Tells why, also the control plane when it already waits for this spare."""
    control.send(json.dumps({"failed": message}).encode())
    connection = _take(control)
    if connection is not None:
        sandbox.refuse(connection, "internal", message)
    os._exit(1)


def _take(control):
    """The connection of the control plane that wants this spare; None when the launcher ended or gave it up."""
    data, ancillary, _flags, _address = control.recvmsg(16, socket.CMSG_SPACE(4))
    if not data:
        return None
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            (descriptor,) = struct.unpack("i", content[:4])
            return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptor)
    return None


def hand_over(control, connection):
    """The launcher's side of `_take`. Fails with OSError when the spare is no more."""
    control.sendmsg([b"s"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", connection.fileno()))])
