"""The processes of the user: what they give up before the user's code runs in them."""

import _signal
import atexit
import gc
import os
import resource
import signal
import socket
import sys
import traceback

import rookery_runtime

from . import command, frames, syscalls
from . import layers as layers_module

#: The runtime's listening socket in the user's process.
LISTENER = 3
#: Where its orders come from, and behind them the word to go.
ORDERS = 4
GO = b"g"

#: Queued signals and timers; bytes of POSIX message queues.
_MOST_PENDING_SIGNALS = 1024
_MOST_QUEUE_BYTES = 409600


def sets_ids(layers):
    """Whether the user's ids are set; in a user namespace they are mapped, and without rights they stay."""
    return not layers.has("user") and os.geteuid() == 0


def identity_orders(sandbox):
    """How a process of this sandbox becomes the user, as plain data."""
    return plain_identity(sandbox.identity, sandbox.layers)


def plain_identity(identity, held):
    return {
        "uid": identity.uid,
        "gid": identity.gid,
        "groups": identity.groups,
        "set": sets_ids(held),
        "map": held.has("user") and (identity.uid, identity.gid) != (0, 0),
    }


def wait_for_orders(layers, title, resident):
    """
    The life of the user's process of a worker, which `forking` has forked: everything that needs no orders, then the orders, then the user's code.
    `resident`: the program that waits for the orders (`resident.Resident`); None: this interpreter does.
    """
    try:
        if resident is not None:
            become(layers, resident.identity, resident.limits)
            command.run(resident.argv, resident.environment, "/")
        rookery_runtime.after_fork()
    except BaseException as error:
        _fail(error)
    # Only a nested user namespace, which the filter forbids, may have to be made yet.
    obey(layers, title, is_filtered=not layers.has("user"))


def obey(layers, title, tell=None, is_filtered=True):
    """
    Waits for the orders, prepares what they say, and does it at the word to go; `tell(channel)` is called before. Never returns.

    The sandbox may still be in the making when the orders come: until the word, nothing of the user's runs and no file is looked at.
    """
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, LISTENER)
        # What most of them want. It accepts nobody before it has a secret.
        runtime = rookery_runtime.prepare(listener)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, ORDERS) as channel:
            if tell is not None:
                tell(channel)
            orders = frames.read_message(channel)
            if orders is None:
                os._exit(0)
            # With processes of its own the sandbox has nobody else of the user's yet, who could reach into a process that still sees the host's
            # files. Mapping ids makes a namespace, which the kernel refuses in the moment when the root changes.
            becomes_early = layers.has("pid") and not orders["identity"]["map"]
            if becomes_early:
                become(layers, orders["identity"], orders["limits"])
            if "argv" not in orders:
                _prepare_python(orders, title)
            if "argv" in orders or orders.get("server") is not None:
                runtime.discard()
            else:
                runtime.arm()
                # Rights and filter are each thread's own: it begins with those that code shall have.
                if becomes_early and is_filtered:
                    runtime.control.start()
            if channel.recv(1) != GO:
                os._exit(0)
        if not becomes_early:
            become(layers, orders["identity"], orders["limits"])
        if not is_filtered:
            layers_module.filter_calls(layers)
        if "argv" in orders:
            listener.detach()
            if not orders["keepsListener"]:
                os.close(LISTENER)
            if orders["mayServeHttp"]:
                _run_bridge(orders, title)
            command.run(orders["argv"], orders["env"], orders["workingDir"])
    except BaseException as error:
        _fail(error)
    _run_python(orders, listener, runtime)


def _fail(error):
    os.write(2, ("the runtime cannot be started: %s: %s\n" % (type(error).__name__, error)).encode())
    os._exit(70)


def become_command(sandbox, standard):
    """Makes a child of init, with these descriptors as 0, 1 and 2, a process of the user."""
    command.detach(standard)
    become(sandbox.layers, dict(identity_orders(sandbox), map=False), sandbox.limits)


def become(layers, identity, limits):
    """The user's limits and ids, and no capability."""
    _limit(layers, limits)
    if identity["map"]:
        layers_module.become_user_of_namespace(layers, identity["uid"], identity["gid"])
    if identity["set"]:
        os.setgroups(identity["groups"])
        os.setresgid(identity["gid"], identity["gid"], identity["gid"])
        os.setresuid(identity["uid"], identity["uid"], identity["uid"])
    if layers.has("capabilities"):
        syscalls.keep_capabilities(())
    # Init is closed to those inside; this one is theirs. Not a fork of an init that has secrets: that is theirs once it executes something.
    if not layers.has("secrets"):
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    if not layers.has("pid"):
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def _prepare_python(orders, title):
    """What this interpreter needs to know of the instance."""
    set_environment(orders["env"])
    title.set("rookery: %s" % orders["instanceId"])
    # As in `Runtime.arm`.
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)
    os.set_inheritable(LISTENER, False)


def _run_python(orders, listener, runtime):
    """Serves calls until the runtime is stopped, then ends the process."""
    error = None
    try:
        command.enter_directory(orders["workingDir"])
        secret, server, init = orders["secret"], orders.get("server"), orders.get("init")
        orders.clear()
        gc.enable()
        if server is None:
            runtime.run(secret, init)
        else:
            # The modules for HTTP are not imported beforehand: most instances have no need of it.
            from rookery_runtime import http_bridge

            http_bridge.serve(listener, secret, server)
    except BaseException as raised:
        error = raised
    _end(error)


def _run_bridge(orders, title):
    """Stays the parent of a program that may speak HTTP. Never returns."""
    from rookery_runtime import program_bridge

    command.enter_directory(orders["workingDir"])
    env = orders["env"]
    own = {name: env.pop(name) for name in ("ROOKERY_RUNTIME_SOCKET", "ROOKERY_RUNTIME_SECRET")}
    set_environment(env)
    title.set("rookery: %s" % orders["instanceId"])
    gc.enable()
    program_bridge.serve(own["ROOKERY_RUNTIME_SOCKET"], own["ROOKERY_RUNTIME_SECRET"], orders["argv"], own)


def set_environment(env):
    """Not by `update`, which asks for the kinds of mappings that there are."""
    for name in list(os.environ):
        del os.environ[name]
    for name, value in env.items():
        os.environ[name] = value


def _end(error):
    """The end of an ordinary interpreter."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else (0 if error.code is None else 1)
    elif error is not None:
        code = 1
        traceback.print_exception(type(error), error, error.__traceback__)
    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(code & 0xFF)


def _limit(layers, limits):
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, limits["maxOpenFiles"])
    # The kernel counts these by user, for the whole machine: some is left for others of the same one.
    _lower(resource.RLIMIT_SIGPENDING, _MOST_PENDING_SIGNALS)
    _lower(resource.RLIMIT_MSGQUEUE, _MOST_QUEUE_BYTES)
    if not layers.has("cgroup.memory"):
        _lower(resource.RLIMIT_DATA, min(limits["memoryMb"] * 1024 * 1024, 2 ** 62))
    # Without a user namespace the kernel would count the user's processes of the whole machine.
    if not layers.has("cgroup.pids") and layers.has("user"):
        _lower(resource.RLIMIT_NPROC, limits["maxProcesses"])


def _lower(limit, value):
    _soft, hard = resource.getrlimit(limit)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(limit, (value, value))
