"""
The binaries built from `runtimes/native`: the first process of a sandbox, and the library that forks workers.
"""

import ctypes
import errno
import fcntl
import os

from . import syscalls

_DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")
_SYS_MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}.get(syscalls.MACHINE)
_HOW = "what starts sandboxes is built for this machine by `npm run build` where there is a C compiler (cc)"
_CLOSE_ON_EXEC = 1
_ALLOW_SEALING = 2
_MAY_BE_EXECUTED = 16
_ADD_SEALS = 1033
#: Seals against further seals, and against shrinking, growing and writing.
_EVERY_SEAL = 15
#: Mode without read permission. The kernel then forbids other processes to inspect the program from its start
#: on.
_MODE = 0o111


class Program:
    """
    The program of the first process, in a memory file that a zygote shares with its sandboxes.

    Sandboxes need neither its path nor its file system.
    """

    def __init__(self):
        """Loads the program. Raises OSError."""
        self._path = os.path.join(_DIRECTORY, "init-" + syscalls.MACHINE)
        try:
            with open(self._path, "rb") as source:
                content = source.read()
        except OSError as error:
            raise OSError(error.errno, "%s: %s; %s" % (self._path, error.strerror, _HOW))
        try:
            # Kernels before 6.3 do not know the last flag, and do not need it.
            self._descriptor = _make(_CLOSE_ON_EXEC | _ALLOW_SEALING | _MAY_BE_EXECUTED)
        except OSError:
            self._descriptor = _make(_CLOSE_ON_EXEC | _ALLOW_SEALING)
        _write(self._descriptor, content)
        os.fchmod(self._descriptor, _MODE)
        fcntl.fcntl(self._descriptor, _ADD_SEALS, _EVERY_SEAL)

    def fileno(self):
        return self._descriptor

    def execute(self, arguments):
        """Replaces this process with the program, without an environment. Raises OSError."""
        try:
            os.execve(self._descriptor, arguments, {})
        except PermissionError:
            # The kernel may forbid to execute memory files (vm.memfd_noexec).
            os.execve(self._path, arguments, {})


def library():
    """Returns the path of the library that forks workers. Raises OSError."""
    path = os.path.join(_DIRECTORY, "fork-%s.so" % syscalls.MACHINE)
    if not os.path.isfile(path):
        raise OSError(errno.ENOENT, "%s: %s; %s" % (path, os.strerror(errno.ENOENT), _HOW))
    return path


def memory_file(content):
    """Returns the descriptor of a new file without a name that has this content. Raises OSError."""
    descriptor = _make(0)
    _write(descriptor, content)
    return descriptor


def _make(flags):
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rookery-init", flags)  # novm
    if _SYS_MEMFD_CREATE is None:
        raise OSError(38, "memfd_create: not known for %s" % syscalls.MACHINE)
    descriptor = syscalls.LIBC.syscall(ctypes.c_long(_SYS_MEMFD_CREATE), b"rookery-init", ctypes.c_uint(flags))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, "memfd_create: %s" % os.strerror(number))
    return descriptor


def _write(descriptor, content):
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
