"""
The runtime of programs that may not know the runtime protocol: one that makes the socket of the protocol is left alone with it; one
that serves HTTP on port 8000 instead is called over HTTP. The first of the two decides.
"""
import os
import signal
import time

from . import http_bridge, unix_path
from .http_program import HttpProgram

_STEP_SECONDS = 0.005
_BACKLOG = 128


def serve(path, secret, argv, variables):
    """
    Starts the program, with `variables` beside this process's own, and serves one instance on the unix socket `path`, where nothing
    is yet. Never returns. Waits without end for a program that does neither: the caller has a bound.
    """
    # Everything inside is asked to end at once: the program is, and its end is this one's.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    program = HttpProgram(argv, dict(os.environ, **variables), ignores=(signal.SIGTERM,))
    while not os.path.exists(path):
        if program.has_ended():
            _end_as(program.wait())
        if program.serves():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            http_bridge.serve_program(_listen(path), secret, program)
        time.sleep(_STEP_SECONDS)
    _end_as(program.wait())


def _listen(path):
    listener = unix_path.listen(path, _BACKLOG)
    # The directory's mode and the secret decide who may connect.
    os.chmod(path, 0o666)
    return listener


def _end_as(code):
    """The program's end as this process's own, a signal as that signal."""
    if code < 0:
        try:
            signal.signal(-code, signal.SIG_DFL)
        except (OSError, ValueError):  # SIGKILL and SIGSTOP are what they are
            pass
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
