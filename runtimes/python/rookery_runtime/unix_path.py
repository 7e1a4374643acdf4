"""Opens unix sockets below a data directory of any length.

The kernel accepts at most 107 bytes for the path of a socket. A path through a descriptor of its directory is
always short.
"""

import contextlib
import os
import socket


@contextlib.contextmanager
def short(path):
    """Returns a context with a short path of the same file, valid inside the context. Raises OSError."""
    directory = os.open(os.path.dirname(path) or '.', os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield '/proc/self/fd/%d/%s' % (directory, os.path.basename(path))
    finally:
        os.close(directory)


def listen(path, backlog):
    """Returns a listening unix socket at `path`. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short(path) as place:
            listener.bind(place)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener
