"""Where a pod can be connected to. Anybody in the cluster's network may try: those who have proven nothing are few, and not for long."""

import select
import socket

from .link import Link

PORT = 8710
_BACKLOG = 128
_MOST_UNPROVEN = 32
_MOST_PROVEN = 512
PROOF_SECONDS = 10
#: A node that has lost its power says nothing: its connections end when it has not answered for so long.
_SILENT_SECONDS = 60


def listen(host, port):
    """A listener for both protocols where there are two. `host`: empty for every address of the pod."""
    family = socket.AF_INET if "." in host else socket.AF_INET6
    try:
        listener = _listen(family, host or "::", port)
    except OSError:
        if host:
            raise
        listener = _listen(socket.AF_INET, "0.0.0.0", port)
    return listener


def _listen(family, host, port):
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


class Gate:
    def __init__(self, loop, listener, keys, serve, proof_seconds=PROOF_SECONDS):
        """`serve(link, request)` gets the first frame of each connection that has proven that it may speak."""
        self._loop = loop
        self._listener = listener
        self._keys = keys
        self._serve = serve
        self._proof_seconds = proof_seconds
        #: `{link: timer}`, oldest first.
        self._unproven = {}
        self._proven = 0
        loop.want(listener.fileno(), select.POLLIN, self._on_listener)

    def is_busy(self):
        """Whether somebody who may speak is still connected."""
        return self._proven > 0

    def _on_listener(self, _event):
        try:
            connection, _address = self._listener.accept()
        except OSError:
            return
        if self._proven >= _MOST_PROVEN:
            connection.close()
            return
        if len(self._unproven) >= _MOST_UNPROVEN:
            next(iter(self._unproven)).close()
        _set_options(connection)
        link = Link(self._loop, connection, self._keys, self._on_request)
        self._unproven[link] = self._loop.after(self._proof_seconds, link.close)
        link.on_end = lambda: self._forget(link)

    def _forget(self, link):
        self._loop.cancel(self._unproven.pop(link, None))

    def _on_request(self, link, request):
        self._forget(link)
        self._proven += 1
        link.on_end = self._on_proven_end
        self._serve(link, request)

    def _on_proven_end(self):
        self._proven -= 1


def _set_options(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENT_SECONDS // 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENT_SECONDS // 6)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
