"""Usage of the container, and its OOM kills, from control groups and /proc."""

import os

from rookery_zygote import cgroups, process

_GROUPS = "/sys/fs/cgroup"
_V1, _V2 = 1, 2
_FILES = {
    _V1: {
        "memory": "memory/memory.usage_in_bytes",
        "memory_stat": "memory/memory.stat",
        "cpu": "cpuacct/cpuacct.usage",
        "kills": "memory/memory.oom_control",
    },
    _V2: {
        "memory": "memory.current",
        "memory_stat": "memory.stat",
        "cpu": "cpu.stat",
        "kills": "memory.events",
    },
}


class Measures:
    """The measurable usage. `groups` is the path where control groups are mounted."""

    def __init__(self, groups=_GROUPS):
        self._groups = groups
        self._version = _V2 if os.path.exists(os.path.join(groups, "cgroup.controllers")) else _V1
        try:
            self._kills = os.open(self._path("kills"), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._kills = None
        self._cpu_before = self._kills_before = 0

    def begin(self):
        """Starts to measure for a new instance."""
        self._cpu_before = self._cpu_micros() or 0
        self._kills_before = cgroups.read_oom_kills(self._kills)

    def has_killed(self):
        """Returns True if the kernel has killed a process of the instance for lack of memory."""
        return cgroups.read_oom_kills(self._kills) > self._kills_before

    def stats(self):
        below = process.descendants(os.getpid())
        memory, cpu = self._memory_bytes(), self._cpu_micros()
        if memory is None or cpu is None:
            used = process.usage(below)
            memory, cpu = used["memoryBytes"], used["cpuMicros"]
        else:
            cpu -= self._cpu_before
        return {"memoryBytes": memory, "cpuMicros": cpu, "processes": len(below)}

    def _path(self, name):
        return os.path.join(self._groups, _FILES[self._version][name])

    def _memory_bytes(self):
        """Returns the used memory without page cache that the kernel can drop at once; None if unknown."""
        total = self._number("memory")
        if total is None:
            return None
        dropped = self._fields("memory_stat").get("total_inactive_file" if self._version == _V1 else "inactive_file", 0)
        return max(0, total - dropped)

    def _cpu_micros(self):
        if self._version == _V2:
            return self._fields("cpu").get("usage_usec")
        nanos = self._number("cpu")
        return None if nanos is None else nanos // 1000

    def _number(self, name):
        try:
            with open(self._path(name)) as source:
                return int(source.read())
        except (OSError, ValueError):
            return None

    def _fields(self, name):
        try:
            with open(self._path(name)) as source:
                pairs = [line.split() for line in source]
        except OSError:
            return {}
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
