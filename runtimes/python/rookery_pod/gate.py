"""
Listens for connections to a pod.

Any process in the cluster's network may connect, so unproven connections are limited in number and time.
"""

import select
import socket

from .link import Link

PORT = 8710
_BACKLOG = 128
_MOST_UNPROVEN = 32
_MOST_PROVEN = 512
PROOF_SECONDS = 10
#: Time after which a connection without a sign of life ends, for example when a node has lost its power.
_SILENT_SECONDS = 60


def listen(host, port):
    """
    Returns a listener for IPv6 and IPv4, as available.

    An empty `host` means every address of the pod. Raises OSError.
    """
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
        """Calls `serve(link, request)` with the first frame of each connection that has proven its key."""
        self._loop = loop
        self._listener = listener
        self._keys = keys
        self._serve = serve
        self._proof_seconds = proof_seconds
        #: Connections without a proof, as `{link: timer}`, oldest first.
        self._unproven = {}
        self._proven = 0
        loop.want(listener.fileno(), select.POLLIN, self._on_listener)

    def is_busy(self):
        """Returns True while a proven connection is open."""
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
