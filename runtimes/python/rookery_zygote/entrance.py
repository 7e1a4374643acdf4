"""Access to containers for a server that is root on their machine.

Reads one line of JSON from standard input, which names the socket to listen on. Each connection is one
request. A child executes the native program, which enters the needed namespace, becomes the user of the
container without any capability, and serves the request. It does not enter the container's pid namespace, so
that no process inside can see, trace or stop it.
"""

import json
import os
import select
import signal
import socket
import sys

from rookery_runtime import unix_path

from . import access, process, waiting
from .failure import Refusal

_BACKLOG = 128
#: Limit of children for all containers together. Later requests fail. The server limits those of each
#: container.
_MOST_CHILDREN = 1024
_READY = 3


def main():
    """
    Serves until standard input ends, which is the end of the server.

    Running requests continue until they end.
    """
    path = json.loads(sys.stdin.readline())["socket"]
    os.umask(0o077)
    _forget(path)
    listener = unix_path.listen(path, _BACKLOG)
    process.Title().set("rookery: entrance")
    os.write(_READY, b"{\"ok\": true}\n")
    os.close(_READY)
    wake = waiting.Wakeup()
    server = access.Server()
    # The server ends this process. A Ctrl-C in the server's terminal must not.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    poll = select.poll()
    for descriptor in (0, listener.fileno(), wake.fileno()):
        poll.register(descriptor, select.POLLIN)
    children = 0
    while True:
        for descriptor, _event in poll.poll():
            if descriptor == wake.fileno():
                wake.clear()
                ended = []
                waiting.reap(lambda pid, _status: ended.append(pid))
                children -= len(ended)
            elif descriptor == 0:
                _forget(path)
                return
            else:
                children += _accept(listener, children, server)


def _accept(listener, children, server):
    """Accepts a connection. Returns 1 when a child serves it, otherwise 0."""
    try:
        connection, _address = listener.accept()
    except OSError:
        return 0
    with connection:
        if children >= _MOST_CHILDREN:
            access.refuse(connection, "resource_exhausted", "too many accesses to containers are open (%d)" % _MOST_CHILDREN)
            return 0
        try:
            server.prepare()
            child = os.fork()
        except Refusal as refusal:
            access.refuse(connection, refusal.code, refusal.message)
            return 0
        except OSError as error:
            access.refuse(connection, "unavailable", "no process can be started: %s" % error.strerror)
            return 0
        if child == 0:
            server.serve_container(connection)
    return 1


def _forget(path):
    try:
        os.unlink(path)
    except OSError:
        pass

