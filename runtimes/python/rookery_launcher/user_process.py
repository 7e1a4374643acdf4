"""The last steps of a child of the sandbox's first process before it is the user's."""

import atexit
import gc
import os
import resource
import signal
import socket
import sys
import traceback

import rookery_runtime

from . import process, syscalls

#: The runtime's listening socket in the user's process.
LISTENER = 3
_RESET = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


class RunPython(BaseException):
    """Unwinds the stack of launcher and first process, so that the user's code does not stand on it."""

    def __init__(self, sandbox, title):
        super(RunPython, self).__init__()
        self.sandbox = sandbox
        self.title = title


def become(sandbox, standard, keep=()):
    """
    Makes this process the user's: session, descriptors, limits, user, no capabilities. `standard` are the descriptors for
    0, 1 and 2; the descriptors of `keep` stay open as 3, 4, …
    """
    signal.set_wakeup_fd(-1)
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    _arrange(list(standard) + list(keep))
    os.umask(0o022)
    _limit(sandbox)
    identity = sandbox.identity
    if sandbox.switches_user:
        os.setgroups(identity.groups)
        os.setresgid(identity.gid, identity.gid, identity.gid)
        os.setresuid(identity.uid, identity.uid, identity.uid)
    if sandbox.layers.has("capabilities"):
        syscalls.keep_capabilities(())
    # The first process is closed to those inside; this one is theirs.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    if not sandbox.layers.has("pid"):
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def run_python(sandbox, title):
    """Serves calls until the runtime is stopped, then ends the process."""
    error = None
    try:
        _enter_directory(sandbox.working_dir)
        os.environ.clear()
        os.environ.update(sandbox.env)
        title.set("rookery: %s" % sandbox.instance_id)
        secret = sandbox.secret
        sandbox.forget()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        gc.enable()
        rookery_runtime.after_fork()
        rookery_runtime.serve(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, LISTENER), secret)
    except BaseException as raised:
        error = raised
    _end(error)


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


def _limit(sandbox):
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, sandbox.max_open_files)
    if not sandbox.layers.has("cgroup.memory"):
        _lower(resource.RLIMIT_DATA, min(sandbox.memory_mb * 1024 * 1024, 2 ** 62))
    # Without a user namespace the kernel would count the user's processes of the whole machine.
    if not sandbox.layers.has("cgroup.pids") and sandbox.layers.has("user"):
        _lower(resource.RLIMIT_NPROC, sandbox.max_processes)


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
