"""
The runtime of programs that may not know the runtime protocol.

A program that creates the protocol's socket serves it itself, and this process only waits for its end. A
program that serves HTTP on port 8000 instead is called over HTTP. The first of the two events decides.
"""
import os
import signal
import time

from . import http_bridge, unix_path
from .failures import log
from .http_program import HttpProgram, NotServing

_STEP_SECONDS = 0.005
_BACKLOG = 128
_EXIT_NOT_SERVING = 70


def serve(path, secret, argv, variables):
    """
    Starts the program and serves one instance on the unix socket `path`, which must not exist yet. Never
    returns.

    `variables` are added to this process's environment for the program. Waits without limit for a program
    that does neither: the caller has a time limit.
    """
    # At the end of a sandbox SIGTERM reaches all processes in it. The program handles the signal, and this
    # process ends when the program does.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        program = HttpProgram(argv, dict(os.environ, **variables), ignores=(signal.SIGTERM,))
    except NotServing as failure:
        log(str(failure))
        os._exit(_EXIT_NOT_SERVING)
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
    # The directory's mode and the secret protect the socket.
    os.chmod(path, 0o666)
    return listener


def _end_as(code):
    """Ends this process as the program ended: with its exit code, or with its signal."""
    if code < 0:
        try:
            signal.signal(-code, signal.SIG_DFL)
        except (OSError, ValueError):  # SIGKILL and SIGSTOP have no handler
            pass
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
