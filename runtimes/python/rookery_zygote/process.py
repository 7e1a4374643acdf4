"""Facts of the kernel about processes, and the title of this process."""

import ctypes
import os
import signal
import sys

from . import syscalls


def start_time(pid, proc="/proc"):
    """
    Returns the clock ticks after boot at which `pid` started; None when the process does not exist.

    Together with the pid they identify a process.
    """
    try:
        with open("%s/%s/stat" % (proc, pid), "rb") as source:
            data = source.read()
    except OSError:
        return None
    return int(data[data.rindex(b")") + 2 :].split()[19])


def life():
    """
    Returns a name of this process that no other process has, now or later. Ends with its pid.

    A pid alone is not unique: pids are reused, in a container after each of its starts. Directories on the
    disk and control groups have these names.
    """
    return "%s-%d" % (os.urandom(8).hex(), os.getpid())


def boot_id():
    try:
        with open("/proc/sys/kernel/random/boot_id") as source:
            return source.read().strip()
    except OSError:
        return ""


def parents(proc="/proc"):
    """Returns `{pid: parent pid}` of all visible processes."""
    found = {}
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                with open("%s/%s/stat" % (proc, name), "rb") as source:
                    data = source.read()
                found[int(name)] = int(data[data.rindex(b")") + 2 :].split()[1])
            except (OSError, ValueError):
                pass
    return found


def descendants(root, table=None):
    """Returns all processes below `root`, parents before their children."""
    table = parents() if table is None else table
    found = []
    generation = {root}
    while generation:
        generation = {pid for pid, parent in table.items() if parent in generation}.difference(found)
        found.extend(sorted(generation))
    return found


def usage(pids):
    """Returns the total usage of these processes from /proc. Ended processes count nothing."""
    page = os.sysconf("SC_PAGE_SIZE")
    memory = processes = 0
    ticks = 0
    for pid in pids:
        try:
            with open("/proc/%d/statm" % pid) as source:
                fields = source.read().split()
            with open("/proc/%d/stat" % pid, "rb") as source:
                data = source.read()
        except OSError:
            continue
        times = data[data.rindex(b")") + 2 :].split()[11:15]
        memory += (int(fields[1]) - int(fields[2])) * page
        ticks += sum(int(field) for field in times)
        processes += 1
    return {
        "memoryBytes": memory,
        "cpuMicros": ticks * 1000000 // os.sysconf("SC_CLK_TCK"),
        "processes": processes,
    }


def kill(target):
    """Sends SIGKILL to a process, or to a group given as a negative number. Ignores an ended one."""
    try:
        os.kill(target, signal.SIGKILL)
    except OSError:
        pass


class Title:
    """The command line and the start environment that `ps` and /proc show. Overwrites both in place."""

    def __init__(self):
        self._start = self._size = 0
        try:
            with open("/proc/self/stat", "rb") as source:
                data = source.read()
            fields = data[data.rindex(b")") + 2 :].split()
            start, end, env_start, env_end = (int(fields[index]) for index in (45, 46, 47, 48))
        except (OSError, ValueError, IndexError):
            return
        if start and end > start:
            self._start, self._size = start, end - start
        if env_start and env_end > env_start:
            # libc's own `environ` points into this memory. Python has a copy and does not need it.
            for name in list(os.environ):
                del os.environ[name]
            ctypes.memset(env_start, 0, env_end - env_start)

    def set(self, text):
        syscalls.set_name(text)
        if self._size:
            data = os.fsencode(text)[: self._size - 1]
            ctypes.memset(self._start, 0, self._size)
            ctypes.memmove(self._start, data, len(data))


def close_all_but(keep):
    """Closes every descriptor that is not in `keep`."""
    low = 0
    for descriptor in sorted(set(keep)) + [_end_of_descriptors()]:
        # Skips empty ranges: some interpreters treat closerange(0, 0) as the descriptor 0.
        if low < descriptor:
            os.closerange(low, descriptor)
        low = max(low, descriptor + 1)


def _end_of_descriptors():
    # From 3.10 on closing a range is a single system call. Before, each number takes one.
    if sys.version_info >= (3, 10):
        return 1 << 24
    try:
        return max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    except (OSError, ValueError):
        return 4096
