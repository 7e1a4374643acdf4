"""Helpers for tests of bytes that pass between connections."""
import array
import fcntl
import termios


def rest_of(connection):
    """Returns all bytes up to the end of the connection."""
    parts = []
    while True:
        part = connection.recv(65536)
        if not part:
            return b''.join(parts)
        parts.append(part)


def fill(connection, until_waiting):
    """
    Sends until no more bytes are accepted.

    `until_waiting` returns when the reader sleeps, and fails if that never happens.
    """
    left = array.array('i', [0])
    connection.setblocking(False)
    while left[0] == 0:
        try:
            while True:
                connection.send(b'x' * 65536)
        except BlockingIOError:
            pass
        until_waiting()
        fcntl.ioctl(connection, termios.TIOCOUTQ, left)
