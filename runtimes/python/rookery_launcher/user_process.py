"""The processes of the user: what they give up before the user's code runs in them."""

import atexit
import gc
import os
import resource
import signal
import socket
import sys
import traceback

import rookery_runtime

from . import frames, process, rehearsal, syscalls
from . import layers as layers_module

#: The runtime's listening socket in the user's process.
LISTENER = 3
#: Where its orders come from.
_ORDERS = 4
_RESET = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


class BecomeUser(BaseException):
    """Unwinds the stack of launcher and first process, so that the user's code does not stand on it."""

    def __init__(self, layers, title, descriptors):
        super(BecomeUser, self).__init__()
        self.layers = layers
        self.title = title
        #: Standard input, output and error, the runtime's listener, the orders.
        self.descriptors = descriptors


def sets_ids(layers):
    """Whether the user's ids are set; in a user namespace they are mapped, and without rights they stay."""
    return not layers.has("user") and os.geteuid() == 0


def identity_orders(sandbox):
    """How a process of this sandbox becomes the user, as plain data."""
    identity, held = sandbox.identity, sandbox.layers
    return {
        "uid": identity.uid,
        "gid": identity.gid,
        "groups": identity.groups,
        "set": sets_ids(held),
        "map": held.has("user") and (identity.uid, identity.gid) != (0, 0),
    }


def wait_for_orders(layers, title, descriptors):
    """The life of the user's process of a spare: everything that needs no orders, then the orders, then the user's code."""
    try:
        _detach(descriptors)
        # Only a nested user namespace, which the filter forbids, may have to be made yet.
        is_filtered = not layers.has("user")
        if is_filtered:
            layers_module.filter_calls(layers)
        rookery_runtime.after_fork()
        rehearsal.rehearse()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, _ORDERS) as channel:
            orders = frames.read_message(channel)
        if orders is None:
            os._exit(0)
        become(layers, orders["identity"], orders["limits"])
        if not is_filtered:
            layers_module.filter_calls(layers)
        if "argv" in orders:
            if not orders["keepsListener"]:
                os.close(LISTENER)
            if orders["mayServeHttp"]:
                _run_bridge(orders, title)
            run_program(orders["argv"], orders["env"], orders["workingDir"])
    except BaseException as error:
        os.write(2, ("the runtime cannot be started: %s: %s\n" % (type(error).__name__, error)).encode())
        os._exit(70)
    _run_python(orders, title)


def become_command(sandbox, standard):
    """Makes a child of the first process, with these descriptors as 0, 1 and 2, a process of the user."""
    _detach(standard)
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
    # The first process is closed to those inside; this one is theirs.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    if not layers.has("pid"):
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def _detach(descriptors):
    """A session of its own, ordinary signals, and no descriptors but these, as 0, 1, 2 …"""
    signal.set_wakeup_fd(-1)
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    os.umask(0o022)
    _arrange(descriptors)


def _run_python(orders, title):
    """Serves calls until the runtime is stopped, then ends the process."""
    error = None
    try:
        _enter_directory(orders["workingDir"])
        os.environ.clear()
        os.environ.update(orders["env"])
        title.set("rookery: %s" % orders["instanceId"])
        secret, server = orders["secret"], orders.get("server")
        orders.clear()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        gc.enable()
        os.set_inheritable(LISTENER, False)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, LISTENER)
        if server is None:
            rookery_runtime.serve(listener, secret)
        else:
            # What speaks HTTP is not imported beforehand: most instances have no need of it.
            from rookery_runtime import http_bridge

            http_bridge.serve(listener, secret, server)
    except BaseException as raised:
        error = raised
    _end(error)


def _run_bridge(orders, title):
    """Stays the parent of a program that may speak HTTP. Never returns."""
    from rookery_runtime import program_bridge

    _enter_directory(orders["workingDir"])
    env = orders["env"]
    own = {name: env.pop(name) for name in ("ROOKERY_RUNTIME_SOCKET", "ROOKERY_RUNTIME_SECRET")}
    os.environ.clear()
    os.environ.update(env)
    title.set("rookery: %s" % orders["instanceId"])
    gc.enable()
    program_bridge.serve(own["ROOKERY_RUNTIME_SOCKET"], own["ROOKERY_RUNTIME_SECRET"], orders["argv"], own)


def run_program(argv, env, working_dir):
    """Becomes the program, or ends with 127 and a line that says why not."""
    _enter_directory(working_dir)
    try:
        os.execvpe(argv[0], argv, env)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        os.write(2, ("cannot run %s: %s\n" % (argv[0], reason)).encode("utf-8", "replace"))
    os._exit(127)


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


def _arrange(descriptors):
    """The descriptors become 0, 1, 2 …; all others are closed."""
    # First out of the way, so that none is overwritten before it has moved.
    moved = []
    for descriptor in descriptors:
        high = descriptor
        while high < len(descriptors):
            high = os.dup(high)
        moved.append(high)
    for number, descriptor in enumerate(moved):
        os.dup2(descriptor, number)
    process.close_all_but(range(len(descriptors)))


def _limit(layers, limits):
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, limits["maxOpenFiles"])
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


def _enter_directory(path):
    try:
        os.chdir(path)
    except OSError:
        os.chdir("/")
