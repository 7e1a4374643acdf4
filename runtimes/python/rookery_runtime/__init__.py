"""
Runs user code inside an instance and speaks Rookery's runtime protocol with the control plane.

Importing this package starts and opens nothing. The import loads everything that serving needs, so that one
process can import it once and fork an instance in milliseconds. The child calls `after_fork()` and then
`serve(listener, secret)`. A child that has spare time calls `prepare(listener)` first, and `run` on the
result later.
"""
from .interrupt import CallCancelled
from .process import after_fork
from .rehearsal import rehearse
from .runtime import Runtime
from .version import __version__

__all__ = ['CallCancelled', 'after_fork', 'prepare', 'rehearse', 'serve', '__version__']


def prepare(listener):
    """
    Returns the runtime of one instance, which accepts no connection yet.

    `run(secret, init)` on the result serves as `serve` does. `discard()` releases the descriptors of
    the runtime.
    """
    return Runtime(listener)


def serve(listener, secret, init=None):
    """
    Serves one instance on a listening socket (unix or TCP) in the main thread. Never returns.

    A STOP frame or SIGTERM ends the process with exit code 0. `secret` is the text that every connection must
    send in its HELLO. `init` holds the members of the INIT that will follow, if the caller knows them: the
    code then loads at once, and the client that sends the INIT gets the outcome.
    """
    Runtime(listener).run(secret, init)
