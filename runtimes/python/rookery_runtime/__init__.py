"""
Runs user code inside an instance and speaks Rookery's runtime protocol with the control plane.

Importing it starts and opens nothing, and imports everything that serving needs, so that one process can import it once and
fork an instance in milliseconds: `after_fork()` in the child, then `serve(listener, secret)`; or `prepare(listener)` while nobody waits
for it, and `run` of what it gives.
"""
from .interrupt import CallCancelled
from .process import after_fork
from .rehearsal import rehearse
from .runtime import Runtime
from .version import __version__

__all__ = ['CallCancelled', 'after_fork', 'prepare', 'rehearse', 'serve', '__version__']


def prepare(listener):
    """The runtime of one instance, which accepts nobody yet: `run(secret, init)` serves as `serve` does, `discard()` lets go of it."""
    return Runtime(listener)


def serve(listener, secret, init=None):
    """
    Serves one instance on a listening socket (unix or TCP) in the main thread. Never returns: a STOP or SIGTERM ends the process
    with 0. `secret` is what every connection must open with. `init`: the members of the INIT that will come, where they are known: the
    code loads at once, and whoever sends the INIT gets the outcome.
    """
    Runtime(listener).run(secret, init)
