"""What the kernel tells about processes, and what this one shows of itself."""

import ctypes
import os
import signal
import sys

from . import syscalls


def start_time(pid, proc="/proc"):
    """Clock ticks after boot at which `pid` started: with the pid it names one process. None when it is gone."""
    try:
        with open("%s/%s/stat" % (proc, pid), "rb") as source:
            data = source.read()
    except OSError:
        return None
    return int(data[data.rindex(b")") + 2 :].split()[19])


def life():
    """
    A name of this process that no other one has, now or later: pids come again, in a container with each of its starts, and what is called by them is
    on the disk and in the control groups. Ends with its pid.
    """
    return "%s-%d" % (os.urandom(8).hex(), os.getpid())


def boot_id():
    try:
        with open("/proc/sys/kernel/random/boot_id") as source:
            return source.read().strip()
    except OSError:
        return ""


def parents(proc="/proc"):
    """`{pid: parent pid}` of all processes that can be seen."""
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
    """All processes below `root`, parents before their children."""
    table = parents() if table is None else table
    found = []
    generation = {root}
    while generation:
        generation = {pid for pid, parent in table.items() if parent in generation}.difference(found)
        found.extend(sorted(generation))
    return found


def usage(pids):
    """What /proc says that these use together; those that have gone count nothing."""
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
    """SIGKILL to a process, or to a group as a negative number. One that is gone is no failure."""
    try:
        os.kill(target, signal.SIGKILL)
    except OSError:
        pass


class Title:
    """The command line and the start environment that `ps` and /proc show: both are written over in place."""

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
            # libc's own `environ` points into this memory. Python has its copy, so nobody misses it.
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
        # Never an empty range: some interpreters take closerange(0, 0) for the descriptor 0.
        if low < descriptor:
            os.closerange(low, descriptor)
        low = max(low, descriptor + 1)


def _end_of_descriptors():
    # One system call closes a range from 3.10 on, whatever is in it; before, each one is a call.
    if sys.version_info >= (3, 10):
        return 1 << 24
    try:
        return max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    except (OSError, ValueError):
        return 4096
