"""
Runs user code inside an instance and speaks Rookery's runtime protocol with the control plane.

Importing it starts and opens nothing, and imports everything that serving needs, so that one process can import it once and
fork an instance in milliseconds: `after_fork()` in the child, then `serve(listener, secret)`.
"""
from .interrupt import CallCancelled
from .process import after_fork
from .runtime import Runtime
from .version import __version__

__all__ = ['CallCancelled', 'after_fork', 'serve', '__version__']


def serve(listener, secret):
    """
    Serves one instance on a listening socket (unix or TCP) in the main thread. Never returns: a STOP or SIGTERM ends the process
    with 0. `secret` is what every connection must open with.
    """
    Runtime(listener, secret).run()
