"""The processes of the user: drops rights before the user's code runs in them."""

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

#: Descriptor of the runtime's listening socket in the user's process.
LISTENER = 3
#: Descriptor from which the orders come, and after them the byte that starts the code.
ORDERS = 4
GO = b"g"

#: Limits of queued signals and timers, and of the bytes in POSIX message queues.
_MOST_PENDING_SIGNALS = 1024
_MOST_QUEUE_BYTES = 409600


def sets_ids(layers):
    """
    Returns True if the user's ids are set.

    In a user namespace they are mapped; without rights they stay.
    """
    return not layers.has("user") and os.geteuid() == 0


def identity_orders(sandbox):
    """Returns how a process of this sandbox becomes the user, as plain data."""
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
    Runs the user's process of a worker that `forking` has forked: prepares, waits for orders, runs the user's
    code.

    `resident` is the program that waits for the orders in place of this interpreter (`resident.Resident`), or
    None.
    """
    try:
        if resident is not None:
            become(layers, resident.identity, resident.limits)
            command.run(resident.argv, resident.environment, "/")
        rookery_runtime.after_fork()
    except BaseException as error:
        _fail(error)
    # The filter forbids a nested user namespace. If one may still be needed, the filter is installed later.
    obey(layers, title, is_filtered=not layers.has("user"))


def obey(layers, title, tell=None, is_filtered=True):
    """
    Waits for the orders, prepares, and runs the code when the byte GO arrives. Never returns.

    Calls `tell(channel)` first. The sandbox may be incomplete when the orders arrive. So before GO no user
    code runs and no file is read.
    """
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, LISTENER)
        # Most instances need a runtime. It accepts no connection before it has a secret.
        runtime = rookery_runtime.prepare(listener)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, ORDERS) as channel:
            if tell is not None:
                tell(channel)
            orders = frames.read_message(channel)
            if orders is None:
                os._exit(0)
            # In an own pid namespace no other process of the user exists yet that could access this process,
            # which still sees the host's files. Mapping ids creates a namespace, which the kernel refuses
            # while the root changes.
            becomes_early = layers.has("pid") and not orders["identity"]["map"]
            if becomes_early:
                become(layers, orders["identity"], orders["limits"])
            if "argv" not in orders:
                _prepare_python(orders, title)
            if "argv" in orders or orders.get("server") is not None:
                runtime.discard()
            else:
                runtime.arm()
                # Rights and filter belong to each thread, so the thread starts only with those of the user's
                # code.
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


def become(layers, identity, limits):
    """Sets the user's limits and ids, and drops all capabilities."""
    _limit(layers, limits)
    if identity["map"]:
        layers_module.become_user_of_namespace(layers, identity["uid"], identity["gid"])
    if identity["set"]:
        os.setgroups(identity["groups"])
        os.setresgid(identity["gid"], identity["gid"], identity["gid"])
        os.setresuid(identity["uid"], identity["uid"], identity["uid"])
    if layers.has("capabilities"):
        syscalls.keep_capabilities(())
    # The user may inspect this process, but not init. A fork of an init with secrets stays closed until it
    # executes a program.
    if not layers.has("secrets"):
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    if not layers.has("pid"):
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def _prepare_python(orders, title):
    """Prepares this interpreter for the instance."""
    set_environment(orders["env"])
    title.set("rookery: %s" % orders["instanceId"])
    # Same as in `Runtime.arm`.
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
            # The modules for HTTP are imported here only, because most instances do not need them.
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
    """Replaces the environment. Avoids `update`, which loads the abstract classes of mappings."""
    for name in list(os.environ):
        del os.environ[name]
    for name, value in env.items():
        os.environ[name] = value


def _end(error):
    """Ends the process as an ordinary interpreter does."""
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
    # The kernel counts these per user for the whole machine, so some are left for other processes of the
    # user.
    _lower(resource.RLIMIT_SIGPENDING, _MOST_PENDING_SIGNALS)
    _lower(resource.RLIMIT_MSGQUEUE, _MOST_QUEUE_BYTES)
    if not layers.has("cgroup.memory"):
        _lower(resource.RLIMIT_DATA, min(limits["memoryMb"] * 1024 * 1024, 2 ** 62))
    # Without a user namespace the kernel would count the user's processes on the whole machine.
    if not layers.has("cgroup.pids") and layers.has("user"):
        _lower(resource.RLIMIT_NPROC, limits["maxProcesses"])


def _lower(limit, value):
    _soft, hard = resource.getrlimit(limit)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(limit, (value, value))
