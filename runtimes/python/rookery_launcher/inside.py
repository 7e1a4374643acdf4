"""One request of the server inside a container: enters it as its user, and serves."""

import ctypes
import os
import sys

from . import frames, syscalls

# Taken by the first connection to a name, and not to be looked for inside.
"".encode("idna")

_REQUEST_SECONDS = 10


class Refusal(Exception):
    """A sentence for the caller, and the code of `src/core/error.ts`."""

    def __init__(self, code, message):
        super(Refusal, self).__init__(message)
        self.code = code


def serve(connection):
    """Reads the request of this connection and does it."""
    try:
        request = frames.read_message(connection)
        if request is None:
            return
        _OPERATIONS[request["op"]](connection, request)
    except Refusal as refusal:
        refuse(connection, refusal.code, str(refusal))
    except (OSError, frames.FrameError):
        # The caller went away: there is nobody to tell.
        pass


def refuse(connection, code, message):
    try:
        connection.settimeout(_REQUEST_SECONDS)
        frames.write_message(connection, {"ok": False, "code": code, "message": message})
    except OSError:
        pass


def enter(request, namespaces):
    """
    Into these namespaces of the process `pid` of a container, as the user that it runs as, without capabilities. Ids are those of this
    machine, so a container whose users are mapped needs no more. Fails with Refusal.
    """
    about = "/proc/%d/" % request["pid"]
    try:
        opened = [os.open(about + "ns/" + name, os.O_RDONLY | os.O_CLOEXEC) for name in namespaces]
        with open(about + "cgroup") as source:
            groups = source.read()
        with open(about + "status") as source:
            status = dict(line.split(":", 1) for line in source.read().splitlines() if ":" in line)
    except OSError:
        raise Refusal("unavailable", "the sandbox has ended")
    # The pid may be somebody else's by now.
    if request["container"] not in groups:
        raise Refusal("unavailable", "the sandbox has ended")
    try:
        for descriptor in opened:
            _set_namespace(descriptor)
            os.close(descriptor)
        _become(status)
    except OSError as error:
        raise Refusal("unavailable", "the sandbox cannot be entered: %s" % error)
    _import_nothing()


def _import_nothing():
    """What a path names from here on is the container's, and its files are not ours to run."""
    sys.path[:] = []
    sys.path_importer_cache.clear()
    sys.meta_path[:] = [finder for finder in sys.meta_path if "PathFinder" not in repr(finder)]


def _set_namespace(descriptor):
    if syscalls.LIBC.setns(ctypes.c_int(descriptor), ctypes.c_int(0)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, "setns: %s" % os.strerror(number))


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


_OPERATIONS = {}
