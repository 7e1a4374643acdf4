"""Helpers for a process that waits in `poll`: for children, for deadlines, for conditions."""

import os
import signal
import socket
import time

#: Longest wait. A larger number of milliseconds than fits an `int` would mean a wait without limit.
_LONGEST_SECONDS = 86400


class Wakeup:
    """A socket that becomes readable at every handled signal, including SIGCHLD. Use one for each process."""

    def __init__(self):
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_ignored: None)
        signal.set_wakeup_fd(self._writer.fileno())

    def fileno(self):
        return self._reader.fileno()

    def clear(self):
        self._reader.recv(4096)

    def nudge(self):
        """Makes the socket readable, unless it is full."""
        try:
            self._writer.send(b"\0")
        except OSError:
            pass

    def close(self):
        """Stops the wake-ups. In a child this affects only its own copy."""
        signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()

    def detach(self):
        """Forgets the descriptors in a child, so that its copy does not close reused numbers later."""
        self._reader.detach()
        self._writer.detach()


def reap(ended, options=os.WNOHANG):
    """
    Calls `ended(pid, status)` for each child that has ended. Returns False when there are no children left.

    With `options` 0 it waits until then.
    """
    while True:
        try:
            pid, status = os.waitpid(-1, options)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        ended(pid, status)


def left_ms(deadline):
    """Returns the milliseconds that `poll` may wait until `deadline` (monotonic); None without a deadline."""
    if deadline is None:
        return None
    return max(0, min(deadline - time.monotonic(), _LONGEST_SECONDS)) * 1000 + 1


def is_over(deadline):
    """Returns True if the deadline has passed; False without a deadline."""
    return deadline is not None and time.monotonic() >= deadline


def until(is_so, seconds, step_seconds):
    """Polls `is_so()` until it is true. Returns False after that time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if is_over(deadline):
            return False
        time.sleep(step_seconds)
    return True
