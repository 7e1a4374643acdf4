"""
One request to the user's HTTP server, which the cancelling of its call can end at any point.

What the server says is input: whatever it is, it ends as an answer or as an exception, and costs a bounded amount of memory.
"""
import errno
import http.client
import os
import random
import re
import select
import socket
import threading
import time

#: An interrupt of a thread other than the main one is seen only between two waits.
_WAIT_SECONDS = 0.1
_CHUNK_BYTES = 64 * 1024
#: How much of an answer may be no body: head, interim answers, sizes of chunks, trailers. Twice what one read may take.
_SPARE_BYTES = 2 * _CHUNK_BYTES
#: Each byte of a body pays for so many beside it: a chunk of one byte has five around it.
_SPARE_PER_BYTE = 16
#: How much of a server's own words an error repeats.
_SHOWN_CHARS = 300
#: The memory for all answers that are read at one time, and for one byte of an answer: as JSON it becomes objects.
_LIMIT_BYTES = 512 * 1024 * 1024
_GROWTH = 16
#: So much of an answer is read before it is known how large it may become.
_SMALL_BYTES = 16 * 1024

_MOST_CHUNK_BYTES = 1 << 62
_LENGTH = re.compile(r'[0-9]{1,18}\Z')

FAILURES = (OSError, http.client.HTTPException)


class Connection(http.client.HTTPConnection):
    """To the user's server; stays open between calls. With a `deadline` (monotonic) everything on it ends then, with socket.timeout."""

    def __init__(self, address, deadline=None):
        http.client.HTTPConnection.__init__(self, *address)
        self.response_class = _Response
        self._address = address
        self._deadline = deadline

    def connect(self):
        self.sock = _Socket(self._deadline)
        self.sock.connect_to(self._address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, path, body, headers):
        """The response, its body not read yet. Never sends twice: it first opens a connection again that is known to be closed."""
        if self.sock is not None:
            if self.sock.is_readable():
                self.close()  # the server has ended it, or said something that nobody asked for
            else:
                self.sock.spare = _SPARE_BYTES
        self.request('POST', path, body, headers)
        response = self.getresponse()
        _check(response)
        return response


def read_pieces(response):
    """The body; where its length is not known, each piece as soon as it is there."""
    # With a known length older Pythons' read1 waits for more behind the end.
    read = response.read1 if response.length is None else response.read
    while True:
        piece = read(_CHUNK_BYTES)
        if not piece:
            break
        response.wire.spare = min(_SPARE_BYTES, response.wire.spare + _SPARE_PER_BYTE * len(piece))
        yield piece
    response.close()


def length_of(response):
    """None when the server does not say it."""
    length = response.headers.get('Content-Length')
    return None if length is None else int(length)


def text_of(error):
    """`BadStatusLine: …`: a server's own words may be long."""
    text = '%s: %s' % (type(error).__name__, error)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + '…'


class ByteLimiter(object):
    """
    Memory for the answers that all threads read at one time. A thread has one slot in it, so that whatever interrupts it leaves nothing
    behind that its next `hold` does not put right; and there is no lock that it could take along.
    """

    def __init__(self):
        self._held = {}

    def hold(self, size, most):
        """Waits until an answer of `size` bytes, known to be so long at least and `most` at the most, may be held. 0: nothing is."""
        me = threading.get_ident()
        wanted = _GROWTH * (size if size <= _SMALL_BYTES else most)
        had = self._held.get(me, 0)
        if wanted < had and size > 0:
            # An event stream may hold less again, and does once its event is out.
            wanted = had if size > _SMALL_BYTES else wanted
        while True:
            self._held[me] = wanted
            if wanted <= had or sum(list(self._held.values())) <= max(_LIMIT_BYTES, wanted):
                return
            self._held[me] = had
            # Of two that come at once both may have stepped back.
            time.sleep(0.001 + 0.01 * random.random())


def _check(response):
    """Fails with HTTPException when the head of an answer can be read in two ways, or is that of none."""
    lengths = response.headers.get_all('Content-Length') or []
    if len(lengths) > 1 or not all(_LENGTH.match(length) for length in lengths):
        raise http.client.HTTPException('its Content-Length is not one number')
    if lengths and response.headers.get('Transfer-Encoding') is not None:
        raise http.client.HTTPException('it has a Content-Length and a Transfer-Encoding')
    if response.status < 200:
        raise http.client.HTTPException('it changes to another protocol, which nobody asked for')


class _Response(http.client.HTTPResponse):
    def __init__(self, sock, *arguments, **options):
        http.client.HTTPResponse.__init__(self, sock, *arguments, **options)
        self.wire = sock

    def _read_status(self):
        while True:
            version, status, reason = http.client.HTTPResponse._read_status(self)
            # Interim answers are no answers. Their number is bounded by what may be no body.
            if not 100 <= status < 200 or status == 101:
                return version, status, reason
            http.client.parse_headers(self.fp)

    def _read_next_chunk_size(self):
        size = http.client.HTTPResponse._read_next_chunk_size(self)
        if not 0 <= size <= _MOST_CHUNK_BYTES:
            raise ValueError('a chunk of so many bytes')
        return size


class _Socket(socket.socket):
    def __init__(self, deadline):
        socket.socket.__init__(self, socket.AF_INET, socket.SOCK_STREAM)
        self.spare = _SPARE_BYTES
        self._deadline = deadline
        # Not `select`, which knows no descriptor above 1023.
        self._reads = select.poll()
        self._reads.register(self, select.POLLIN)
        self._writes = select.poll()
        self._writes.register(self, select.POLLOUT)

    def is_readable(self):
        return bool(self._reads.poll(0))

    def connect_to(self, address):
        """Not in one call of the system, which an interrupt of another thread would have to wait for."""
        self.setblocking(False)
        code = self.connect_ex(address)
        if code == errno.EINPROGRESS:
            self._wait(self._writes)
            code = self.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code != 0:
            raise OSError(code, os.strerror(code))
        self.setblocking(True)

    def recv_into(self, *arguments):
        self._wait(self._reads)
        count = socket.socket.recv_into(self, *arguments)
        self.spare -= count
        if self.spare < 0:
            raise http.client.HTTPException('more than %d bytes of it are no body' % _SPARE_BYTES)
        return count

    def sendall(self, data, flags=0):
        rest = memoryview(data)
        while rest:
            self._wait(self._writes)
            try:
                rest = rest[self.send(rest, flags | socket.MSG_DONTWAIT):]
            except BlockingIOError:
                pass

    def _wait(self, ready):
        is_ready = False
        while not is_ready:
            is_ready = bool(ready.poll(_WAIT_SECONDS * 1000))
            # Also of a server that always has something to say.
            if self._deadline is not None and time.monotonic() >= self._deadline:
                raise socket.timeout('timed out')
