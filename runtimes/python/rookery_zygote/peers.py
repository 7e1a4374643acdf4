"""Decides which processes may give orders to a zygote: those of the service, which no sandbox can imitate."""

import os
import socket
import struct

_CREDENTIALS = struct.Struct("3i")


class Peers:
    def __init__(self):
        self._uid = os.geteuid()
        self._place = _place_of("self")

    def is_service(self, connection):
        """
        Returns True if the process that opened this connection belongs to the service.

        Such a process has this process's user, user namespace, pid namespace and root directory. The mount
        namespace is not compared, because a service manager may give each start of the service another one.
        """
        try:
            said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return False
        pid, uid, _gid = _CREDENTIALS.unpack(said)
        return pid > 0 and uid == self._uid and self._place is not None and _place_of(pid) == self._place


def _place_of(pid):
    """Returns the namespaces and the root of a process; None when it has ended or may not be inspected."""
    directory = "/proc/%s" % pid
    try:
        root = os.stat("%s/root" % directory)
        return [os.readlink("%s/ns/%s" % (directory, kind)) for kind in ("user", "pid")] + [root.st_dev, root.st_ino]
    except OSError:
        return None
