"""What a process that is parked in `poll` waits for beside its connections: its children, a moment, a fact."""

import os
import signal
import socket
import time

#: More at once than an `int` of milliseconds can be is a wait without end.
_LONGEST_SECONDS = 86400


class Wakeup:
    """Becomes readable with every signal that has a handler; from now on SIGCHLD is one. One for each process."""

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
        """Makes it readable, unless it is full."""
        try:
            self._writer.send(b"\0")
        except OSError:
            pass

    def close(self):
        """Signals wake nobody any more. In a child this is about its own copy."""
        signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()

    def detach(self):
        """In a child: its copy must not close descriptors that are other ones by the time it goes."""
        self._reader.detach()
        self._writer.detach()


def reap(ended, options=os.WNOHANG):
    """Calls `ended(pid, status)` for each child that has ended. False when there are no children any more; `options` 0 waits until then."""
    while True:
        try:
            pid, status = os.waitpid(-1, options)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        ended(pid, status)


def left_ms(deadline):
    """What `poll` may wait until `deadline` (monotonic); None when there is none."""
    if deadline is None:
        return None
    return max(0, min(deadline - time.monotonic(), _LONGEST_SECONDS)) * 1000 + 1


def is_over(deadline):
    """False when there is none."""
    return deadline is not None and time.monotonic() >= deadline


def until(is_so, seconds, step_seconds):
    """Looks again and again whether it is so. False when it was not within that time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if is_over(deadline):
            return False
        time.sleep(step_seconds)
    return True
