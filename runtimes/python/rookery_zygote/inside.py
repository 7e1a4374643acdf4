"""Handles one request of the server inside a container: enters it as its user, and serves."""

import os
import sys
import threading

from . import access, command, dial, files, frames, syscalls
from .container import Container
from .failure import Refusal

#: Namespaces that each kind of access needs. The pid namespace is left out, so that no process inside sees
#: this one.
_NAMESPACES = {"dial": ("net",), "files": ("mnt",)}
_WAYS = {"dial": dial.serve, "files": files.serve}

# Loads the codec now: the first connection by name needs it, and inside the container it cannot be imported.
"".encode("idna")


def serve(connection):
    """
    Reads the container, the kind of access and the request from this connection, and handles the request.
    """
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
        # The caller has disconnected.
        pass


def _end_with(container):
    """
    Ends this process with the container.

    Otherwise open files would keep the container's file system alive.
    """
    container.wait()
    os._exit(0)


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
