"""One request to the user's HTTP server, which the cancelling of its call can end at any point."""
import http.client
import select
import socket

from . import http_program

#: An interrupt of a thread other than the main one is seen only between two waits.
_WAIT_SECONDS = 0.1
_CHUNK_BYTES = 64 * 1024


class Connection(http.client.HTTPConnection):
    """To the user's server; stays open between calls."""

    def __init__(self):
        http.client.HTTPConnection.__init__(self, *http_program.ADDRESS)

    def connect(self):
        self.sock = _Socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sock.connect(http_program.ADDRESS)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, path, body, headers):
        """The response, its body not read yet. Never sent twice: what is known to be closed is opened again before."""
        if self.sock is not None and select.select([self.sock], [], [], 0)[0]:
            self.close()  # the server has ended it, or said something that nobody asked for
        self.request('POST', path, body, headers)
        return self.getresponse()


def read_pieces(response):
    """The body; where its length is not known, each piece as soon as it is there."""
    # With a known length older Pythons' read1 waits for more behind the end.
    read = response.read1 if response.length is None else response.read
    while True:
        piece = read(_CHUNK_BYTES)
        if not piece:
            break
        yield piece
    response.close()


class _Socket(socket.socket):
    def recv_into(self, *arguments):
        while not select.select([self], [], [], _WAIT_SECONDS)[0]:
            pass
        return socket.socket.recv_into(self, *arguments)

    def sendall(self, data, flags=0):
        rest = memoryview(data)
        while rest:
            if select.select([], [self], [], _WAIT_SECONDS)[1]:
                try:
                    rest = rest[self.send(rest, flags | socket.MSG_DONTWAIT):]
                except BlockingIOError:
                    pass
