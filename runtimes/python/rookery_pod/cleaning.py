"""Removes the residue of an instance in a pod, between the end of its processes and the next instance.

The root file system is read-only. So residue can be in writable mounts, in System V IPC, in what processes
share with the manager (standard output), and in what a process may change of other processes of its user.
"""

import ctypes
import errno
import fcntl
import os
import resource
import stat

from rookery_zygote import syscalls

#: File systems that show the kernel's own state.
_OF_THE_KERNEL = ("proc", "sysfs", "cgroup", "cgroup2", "devpts")
#: The only file that may stay writable for all users. The cluster reads it at the end of a container.
_MESSAGE_OF_THE_END = "/dev/termination-log"
_IPC_RMID = 0
_IPC = (("shm", "shmctl", 2), ("msg", "msgctl", 2), ("sem", "semctl", 3))


class Dirty(Exception):
    """Residue is left: this pod may not be used for another instance."""


def find_places():
    """Returns every writable mounted directory and file. Raises Dirty if too much is writable to clean."""
    if os.geteuid() == 0:
        raise Dirty("it runs as root, to whom more is open than can be looked after")
    if not os.statvfs("/").f_flag & os.ST_RDONLY:
        raise Dirty("the root file system is not read-only")
    places = []
    with open("/proc/self/mountinfo", "rb") as table:
        for line in table:
            fields = line.split()
            path = os.fsdecode(fields[4].decode("unicode_escape").encode("latin-1"))
            kind = fields[fields.index(b"-") + 1].decode()
            # The code cannot have written to places that this user cannot write to.
            if kind in _OF_THE_KERNEL or not os.access(path, os.W_OK) or path.startswith("/proc/"):
                continue
            places.append(path)
    return places


def clean(places):
    """Empties these places. Raises Dirty when something stays."""
    try:
        for path in places:
            if os.path.isdir(path):
                _empty(path, places)
            elif path == _MESSAGE_OF_THE_END:
                os.truncate(path, 0)
            elif stat.S_ISREG(os.stat(path).st_mode):
                raise Dirty("%s can be written to" % path)
    except OSError as error:
        raise Dirty("%s cannot be emptied: %s" % (path, error.strerror))


def _empty(top, mounted):
    """
    Empties a directory of any depth and with paths of any length, except for mounts below it.

    Moves directories that are deeper than one step up first.
    """
    descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        count = 0
        while True:
            names = [name for name in os.listdir(descriptor) if os.path.join(top, name) not in mounted]
            names = [name for name in names if not _is_above(os.path.join(top, name), mounted)]
            if not names:
                return
            for name in names:
                count = _remove(descriptor, name, count)
    finally:
        os.close(descriptor)


def _is_above(path, mounted):
    return any(place.startswith(path + "/") for place in mounted)


def _remove(parent, name, count):
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
        return count
    os.chmod(name, 0o700, dir_fd=parent)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        for child in os.listdir(inner):
            if stat.S_ISDIR(os.stat(child, dir_fd=inner, follow_symlinks=False).st_mode):
                # Moving a directory requires the right to write to it.
                os.chmod(child, 0o700, dir_fd=inner)
                while True:
                    count += 1
                    try:
                        os.rename(child, ".rookery-%d" % count, src_dir_fd=inner, dst_dir_fd=parent)
                        break
                    except OSError as error:
                        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                            raise
            else:
                os.unlink(child, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=parent)
    return count


def remove_ipc():
    """Removes all objects of System V IPC, which no process uses any more. Raises Dirty."""
    for kind, control, arguments in _IPC:
        for number in _ipc_ids(kind):
            getattr(syscalls.LIBC, control)(*([number] + [0] * (arguments - 2) + [_IPC_RMID, ctypes.c_void_p()]))
        if _ipc_ids(kind):
            raise Dirty("a %s of System V IPC cannot be removed" % kind)


def _ipc_ids(kind):
    try:
        with open("/proc/sysvipc/" + kind) as table:
            return [int(line.split()[1]) for line in table.readlines()[1:]]
    except FileNotFoundError:
        return []


class Bearing:
    """The settings of this process that another process of its user may change, to detect a change."""

    def __init__(self):
        self._found = self._look()

    def restore_streams(self):
        """
        Clears O_NONBLOCK and O_ASYNC of stdout and stderr.

        All processes with the same file share these flags.
        """
        for descriptor in (1, 2):
            try:
                flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
                fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~(os.O_NONBLOCK | os.O_ASYNC if hasattr(os, "O_ASYNC") else os.O_NONBLOCK))
            except OSError:
                # The descriptor is closed.
                pass

    def check(self):
        """Raises Dirty if limits, priority, scheduler or processors were changed."""
        if self._look() != self._found:
            raise Dirty("limits or the priority of the manager were changed")

    @staticmethod
    def _look():
        limits = [getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")]
        return (
            [resource.getrlimit(limit) for limit in limits],
            os.getpriority(os.PRIO_PROCESS, 0),
            os.sched_getscheduler(0),
            sorted(os.sched_getaffinity(0)),
        )
