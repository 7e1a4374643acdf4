"""What tests of bytes that pass from one connection to another share."""
import array
import fcntl
import termios


def rest_of(connection):
    """Everything up to its end."""
    parts = []
    while True:
        part = connection.recv(65536)
        if not part:
            return b''.join(parts)
        parts.append(part)


def fill(connection, until_waiting):
    """Sends until nobody takes more. `until_waiting` returns when whoever reads sleeps, and fails when that never comes."""
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
