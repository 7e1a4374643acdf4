"""The first process of a container, seen from the host."""

import ctypes
import os
import select
import time

from . import syscalls

_SYS_PIDFD_OPEN = 434
#: Interval for checking the process on kernels without pidfd (before 5.3).
_LOOK_SECONDS = 0.5


class Container(object):
    """A process with the interface of `subprocess.Popen` whose exit status is unknown.

    Create the object before this process enters the container.
    """

    def __init__(self, pid):
        self.pid = pid
        self.returncode = None
        end = syscalls.LIBC.syscall(ctypes.c_long(_SYS_PIDFD_OPEN), ctypes.c_int(pid), ctypes.c_uint(0))
        self._end = end if end >= 0 else None

    def poll(self):
        if self.returncode is None and self._has_ended(0):
            self.returncode = 0
        return self.returncode

    def wait(self):
        while not self._has_ended(None):
            pass
        self.returncode = 0
        return 0

    def _has_ended(self, seconds):
        if self._end is not None:
            return bool(select.select([self._end], [], [], seconds)[0])
        if seconds is None:
            time.sleep(_LOOK_SECONDS)
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return False
