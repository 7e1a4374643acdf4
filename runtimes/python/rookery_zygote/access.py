"""
Access to a running sandbox: a child of its init becomes the user and serves one connection.

`files`, `dial` and `stream` do the work in any process that calls them. They depend only on the connection,
the request and their surroundings, not on a sandbox.
"""

import os
import signal

from . import command, dial, files, frames, process, stream, syscalls, user_process
from .failure import Refusal

#: Limits of open accesses of each kind in one sandbox, and their names. For commands as in
#: `src/sandbox/access.ts`.
_MOST_OPEN = {
    "exec": (32, "commands"),
    "dial": (256, "connections to ports"),
    "files": (64, "files and directories"),
}
_REQUEST_SECONDS = 10


def refuse(connection, code, message):
    try:
        frames.write_message(connection, {"ok": False, "code": code, "message": message})
    except OSError:
        # The caller has disconnected.
        pass


def refuse_when_full(connection, way, count):
    """Returns True if there is no free slot, and sends the refusal to the caller."""
    refusal = refusal_when_full(way, count)
    if refusal is not None:
        refuse(connection, refusal.code, refusal.message)
    return refusal is not None


def refusal_when_full(way, count):
    """Returns the Refusal if there is no free slot, or None."""
    if way not in _MOST_OPEN:
        return Refusal("internal", "there is no way %s into a sandbox" % way)
    most, what = _MOST_OPEN[way]
    if count < most:
        return None
    return Refusal("resource_exhausted", "too many %s are open in this sandbox (%d)" % (what, most))


def serve(connection, sandbox, way):
    """Becomes the user, reads the request and handles it. Ends the process."""
    code = 1
    try:
        _enter(connection, sandbox)
        connection.settimeout(_REQUEST_SECONDS)
        request = frames.read_message(connection)
        if request is not None:
            command.enter_directory(sandbox.working_dir)
            _do(connection, sandbox, way, request)
        code = 0
    # Every failure is answered: otherwise the caller would take the closed connection for the end of the
    # sandbox.
    except Refusal as refusal:
        refuse(connection, refusal.code, refusal.message)
    except frames.FrameError as error:
        refuse(connection, "internal", "the request to the sandbox is none: %s" % error)
    except OSError:
        # The caller has disconnected.
        pass
    finally:
        os._exit(code)


def _enter(connection, sandbox):
    """Becomes the user of the sandbox. Raises Refusal."""
    try:
        keep_only(connection)
        command.reset_signals()
        # A write to a closed connection then fails with an error, so that the operation can be undone.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        os.setsid()
        os.umask(0o022)
        user_process.become(sandbox.layers, dict(user_process.identity_orders(sandbox), map=False), sandbox.limits)
        _be_the_first_to_die()
        # The process runs with the rights of the user, but the user must not inspect it.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    except OSError as error:
        raise Refusal("unavailable", "the sandbox cannot be entered: %s" % error.strerror)


def keep_only(connection):
    """Closes all other descriptors, so that no path such as `/proc/self/fd/1` gives access to them."""
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    process.close_all_but([0, 1, 2, connection.fileno()])


def _do(connection, sandbox, way, request):
    try:
        if way == "exec":
            env = dict(sandbox.env)
            env.update(request["env"])
            stream.serve(connection, dict(request, env=env, workingDir=sandbox.working_dir, askedDir=request["workingDir"]))
        elif way == "dial":
            dial.serve(connection, request)
        else:
            files.serve(connection, request)
    except Refusal as refusal:
        refuse(connection, refusal.code, refusal.message)


def _be_the_first_to_die():
    """
    Makes the kernel kill this process first, and not the agent, when memory is exhausted, for example by
    /tmp.
    """
    try:
        adjustment = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(adjustment, b"1000")
        os.close(adjustment)
    except OSError:
        # Without a writable /proc the kernel chooses.
        pass
