"""One request of the server inside a container: enters it as its user, and serves."""

import os
import sys
import threading

from . import access, command, dial, files, frames, syscalls
from .container import Container
from .failure import Refusal

#: What each way needs of a container. Its pid namespace is not among it: nobody inside sees the process that serves.
_NAMESPACES = {"dial": ("net",), "files": ("mnt",)}
_WAYS = {"dial": dial.serve, "files": files.serve}

# Taken by the first connection to a name, and not to be looked for inside.
"".encode("idna")


def serve(connection):
    """Reads which container, the way and the request of this connection, and does it."""
    try:
        place = frames.read_message(connection)
        request = frames.read_message(connection)
        if place is None or request is None:
            return
        try:
            container = Container(place["pid"])
            enter(place, _NAMESPACES[place["way"]])
            threading.Thread(target=_end_with, args=(container,), daemon=True).start()
            command.enter_directory(place["workingDir"])
            _WAYS[place["way"]](connection, request)
        except Refusal as refusal:
            access.refuse(connection, refusal.code, refusal.message)
    except (OSError, frames.FrameError):
        # The caller went away: there is nobody to tell.
        pass


def _end_with(container):
    """Open files do not outlive the container, although its files would be there as long as somebody looks at them."""
    container.wait()
    os._exit(0)


def enter(place, namespaces):
    """
    Into these namespaces of the process `pid` of a container, as the user that it runs as, without capabilities. Ids are those of this
    machine, so a container whose users are mapped needs no more. Fails with Refusal.
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
    # The pid may be somebody else's by now.
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
    # Closed to processes of the same user, here and there.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    os.umask(0o022)


def _import_nothing():
    """From here on paths are those of the container, and its files are not ours to run."""
    sys.path[:] = []
    sys.path_importer_cache.clear()
    sys.meta_path[:] = [finder for finder in sys.meta_path if "PathFinder" not in repr(finder)]
