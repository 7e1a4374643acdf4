"""
Sends one request to the user's HTTP server. Cancelling the call can end the request at any point.

The server's output is untrusted input. Whatever arrives becomes an answer or an exception, and uses a bounded
amount of memory.
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

#: Limit of a single wait. Python raises an interrupt of a thread other than the main one only between two
#: waits.
_WAIT_SECONDS = 0.1
_CHUNK_BYTES = 64 * 1024
#: Limit for the bytes of an answer outside its body: head, interim answers, sizes of chunks, trailers. Twice
#: the size of a single read.
_SPARE_BYTES = 2 * _CHUNK_BYTES
#: Bytes outside the body that each byte of the body allows in addition. A chunk of a single byte has five
#: around it.
_SPARE_PER_BYTE = 16
#: Length of the server's own text that an error message repeats.
_SHOWN_CHARS = 300
#: Memory limit for all answers that are read at one time, and the memory that one byte of an answer is
#: counted with: as JSON it becomes objects.
_LIMIT_BYTES = 512 * 1024 * 1024
_GROWTH = 16
#: Size up to which an answer counts with the bytes read so far instead of its possible size.
_SMALL_BYTES = 16 * 1024

_MOST_CHUNK_BYTES = 1 << 62
_LENGTH = re.compile(r'[0-9]{1,18}\Z')

FAILURES = (OSError, http.client.HTTPException)


class Connection(http.client.HTTPConnection):
    """
    A connection to the user's server that stays open between calls.

    With a `deadline` (monotonic clock, seconds) every operation on the connection ends at that time with
    socket.timeout.
    """

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
        """
        Sends a request and returns the response, whose body is not read yet.

        Never sends a request twice. Opens a new connection first if the server has closed this one or has sent
        data without a request, or if the last call was cancelled before its answer had been read to the end.
        """
        sock = self.sock
        if sock is not None and sock.is_free and not sock.is_readable():
            sock.spare = _SPARE_BYTES
            sock.is_free = False
        else:
            self.close()
        self.request('POST', path, body, headers)
        response = self.getresponse()
        _check(response)
        return response


def read_pieces(response):
    """Yields the body in pieces. If its length is unknown, yields each piece as soon as it arrives."""
    # With a known length, `read1` of older Pythons waits for data beyond the end.
    read = response.read1 if response.length is None else response.read
    while True:
        piece = read(_CHUNK_BYTES)
        if not piece:
            break
        response.wire.spare = min(_SPARE_BYTES, response.wire.spare + _SPARE_PER_BYTE * len(piece))
        yield piece
    missing = response.length
    response.close()
    if missing:
        # http.client reports this only for a body that is read in one call.
        raise http.client.IncompleteRead(b'', missing)
    response.wire.is_free = True


def length_of(response):
    """Returns the Content-Length, or None when the server does not send one."""
    length = response.headers.get('Content-Length')
    return None if length is None else int(length)


def text_of(error):
    """
    Returns a text such as `BadStatusLine: …`, cut to 300 characters because it may contain text of the
    server.
    """
    text = '%s: %s' % (type(error).__name__, error)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + '…'


class ByteLimiter(object):
    """
    Limits the memory for the answers that all threads read at one time.

    Each thread has one entry and no lock is held. So if a thread is interrupted anywhere, its next `hold`
    corrects the entry.
    """

    def __init__(self):
        self._held = {}

    def hold(self, size, most):
        """
        Waits until the current thread may hold an answer. A `size` of 0 releases the thread's share.

        The answer has at least `size` bytes and at most `most`.
        """
        me = threading.get_ident()
        wanted = _GROWTH * (size if size <= _SMALL_BYTES else most)
        had = self._held.get(me, 0)
        if wanted < had and size > 0:
            # An event stream may need less than before, and does after its event has been written.
            wanted = had if size > _SMALL_BYTES else wanted
        while True:
            self._held[me] = wanted
            if wanted <= had or sum(list(self._held.values())) <= max(_LIMIT_BYTES, wanted):
                return
            self._held[me] = had
            # If two threads try at once, both may have stepped back. A random delay separates them.
            time.sleep(0.001 + 0.01 * random.random())


def _check(response):
    """Raises HTTPException when the head of an answer is ambiguous or invalid."""
    lengths = response.headers.get_all('Content-Length') or []
    if len(lengths) > 1 or not all(_LENGTH.match(length) for length in lengths):
        raise http.client.HTTPException('its Content-Length is not one number')
    if lengths and response.headers.get('Transfer-Encoding') is not None:
        raise http.client.HTTPException('it has a Content-Length and a Transfer-Encoding')
    if response.status < 200:
        raise http.client.HTTPException('it changes to another protocol, which the request did not ask for')


class _Response(http.client.HTTPResponse):
    def __init__(self, sock, *arguments, **options):
        http.client.HTTPResponse.__init__(self, sock, *arguments, **options)
        self.wire = sock

    def _read_status(self):
        while True:
            version, status, reason = http.client.HTTPResponse._read_status(self)
            # Skips interim answers. The limit for bytes outside the body bounds their number.
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
        #: True while no answer is due: the last one has been read to its end.
        self.is_free = False
        self._deadline = deadline
        # Uses poll because `select` accepts no descriptor above 1023.
        self._reads = select.poll()
        self._reads.register(self, select.POLLIN)
        self._writes = select.poll()
        self._writes.register(self, select.POLLOUT)

    def is_readable(self):
        return bool(self._reads.poll(0))

    def connect_to(self, address):
        """
        Connects without blocking in a single system call, so that an interrupt takes effect in between.

        Raises OSError.
        """
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
            # Checked even if the socket is ready, because a server may always have something to send.
            if self._deadline is not None and time.monotonic() >= self._deadline:
                raise socket.timeout('timed out')
