"""Enters a container of this machine, as its user."""

import os
import sys

from . import syscalls
from .failure import Refusal

# Loads the codec now: the first connection by name needs it, and inside the container it cannot be imported.
"".encode("idna")


def enter(place, namespaces):
    """
    Enters namespaces of the process `pid` of a container, as its user, without capabilities. Raises Refusal.

    User ids are those of this machine, so a container with mapped users needs nothing more.
    """
    about = "/proc/%d/" % place["pid"]
    try:
        opened = [os.open(about + "ns/" + name, os.O_RDONLY | os.O_CLOEXEC) for name in namespaces]
        with open(about + "cgroup") as source:
            groups = source.read()
        with open(about + "status") as source:
            status = dict(line.split(":", 1) for line in source.read().splitlines() if ":" in line)
    except OSError:
        raise Refusal("unavailable", "the sandbox has ended")
    # The pid may belong to another process by now.
    if place["container"] not in groups:
        raise Refusal("unavailable", "the sandbox has ended")
    try:
        for descriptor in opened:
            syscalls.setns(descriptor)
            os.close(descriptor)
        _become(status)
    except OSError as error:
        raise Refusal("unavailable", "the sandbox cannot be entered: %s" % error)
    _import_nothing()


def _become(status):
    uid, gid = int(status["Uid"].split()[1]), int(status["Gid"].split()[1])
    syscalls.drop_bounding_capabilities()
    os.setgroups([int(group) for group in status["Groups"].split()])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    syscalls.keep_capabilities(())
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    # Processes of the same user cannot inspect this process, on the host or inside.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    os.umask(0o022)


def _import_nothing():
    """
    Disables imports from files: from now on paths are those of the container, whose files must not run here.
    """
    sys.path[:] = []
    sys.path_importer_cache.clear()
    sys.meta_path[:] = [finder for finder in sys.meta_path if "PathFinder" not in repr(finder)]
