"""Unix sockets below a data directory of any length.

The kernel takes at most 107 bytes of path for one; through a descriptor of its directory every path is short.
"""

import contextlib
import os
import socket


@contextlib.contextmanager
def short(path):
    """Another path of the same file, which holds as long as the context. Fails with OSError."""
    directory = os.open(os.path.dirname(path) or '.', os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield '/proc/self/fd/%d/%s' % (directory, os.path.basename(path))
    finally:
        os.close(directory)


def listen(path, backlog):
    """Fails with OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short(path) as place:
            listener.bind(place)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener
