"""The ways into a running sandbox: a child of its init becomes the user and serves one connection.

`files`, `dial` and `stream` do the work in whatever process they are called: they know of no sandbox, only of a connection, a request
and where they are.
"""

import os
import signal

from . import command, dial, files, frames, process, stream, syscalls, user_process
from .failure import Refusal

#: How many of each may be open in one sandbox at a time (commands: as `src/sandbox/access.ts` says), and what they are.
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
        # The caller went away: there is nobody to tell.
        pass


def refuse_when_full(connection, way, count):
    """Whether there is no slot for one more, which the caller learns then."""
    refusal = refusal_when_full(way, count)
    if refusal is not None:
        refuse(connection, refusal.code, refusal.message)
    return refusal is not None


def refusal_when_full(way, count):
    """Why there is no slot for one more, or None."""
    if way not in _MOST_OPEN:
        return Refusal("internal", "there is no way %s into a sandbox" % way)
    most, what = _MOST_OPEN[way]
    if count < most:
        return None
    return Refusal("resource_exhausted", "too many %s are open in this sandbox (%d)" % (what, most))


def serve(connection, sandbox, way):
    """Becomes the user, reads the request and does it; the process ends here."""
    code = 1
    try:
        keep_only(connection)
        command.reset_signals()
        # A reader that has left is an error of the write, which then undoes its beginning.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        os.setsid()
        os.umask(0o022)
        user_process.become(sandbox.layers, dict(user_process.identity_orders(sandbox), map=False), sandbox.limits)
        _be_the_first_to_die()
        # It runs with the rights of the user, and is still not the user's to look into.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        connection.settimeout(_REQUEST_SECONDS)
        request = frames.read_message(connection)
        if request is not None:
            command.enter_directory(sandbox.working_dir)
            _do(connection, sandbox, way, request)
        code = 0
    except (OSError, frames.FrameError):
        pass
    finally:
        os._exit(code)


def keep_only(connection):
    """Nothing else can be reached through this process: a path can be `/proc/self/fd/1`."""
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
    """A full memory ends this process, which filled it (a file in /tmp), and not the agent."""
    try:
        adjustment = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(adjustment, b"1000")
        os.close(adjustment)
    except OSError:
        # Without /proc, or where it is read-only, the kernel chooses.
        pass
