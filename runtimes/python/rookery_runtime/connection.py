"""A connection of a control plane: parses received bytes into frames and sends frames."""
import socket
import struct
import threading

from .interrupt import CallCancelled
from .protocol import HEADER_BYTES, MAX_FRAME_BYTES, ProtocolError, read_header

_DONT_WAIT = socket.MSG_DONTWAIT
_RECEIVE_BYTES = 64 * 1024
_RECEIVE_LARGE_BYTES = 512 * 1024
#: Time after which a control plane that reads nothing loses its connection.
_SEND_TIMEOUT_SECONDS = 30
#: Number of CANCELs that are kept because they arrived before their CALL. The kernel's buffers hold fewer
#: calls.
_EARLY_CANCELS = 4096


class Connection(object):
    """
    Reads and writes the frames of one socket.

    Any thread may call `receive`: it passes frames to `on_frame` in the order of the bytes. Any thread may
    call `send`: it writes each frame as a whole. `queued` and `running` are the open calls of a data
    connection. A thread puts a call into `running` before it removes the call from `queued`. The thread that
    removes the call from `queued` decides whether the call runs.
    """

    def __init__(self, sock, on_frame):
        sock.setblocking(True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('@ll', _SEND_TIMEOUT_SECONDS, 0))
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = sock
        self.fd = sock.fileno()
        self.role = None
        self.client = ''
        #: True if the client accepts SPANS.
        self.takes_spans = False
        self.ended = False
        self.paused = False
        self.is_retired = False
        self.queued = {}
        self.running = {}
        self._early_cancels = {}
        #: Callback `f(connection, kind, call_id, data, start, end)`; the payload is `data[start:end]`.
        self.on_frame = on_frame
        self._buffer = bytearray()
        self._wanted = HEADER_BYTES
        self._receive = sock.recv
        self._send = sock.sendall
        self._read_lock = threading.Lock()
        self._write_lock = threading.Lock()

    def receive(self):
        """
        Reads once and passes on every complete frame.

        Returns False if the connection can no longer be used.
        """
        with self._read_lock:
            if self.ended:
                return False
            try:
                if self._wanted > _RECEIVE_BYTES:
                    data = self._receive(_RECEIVE_LARGE_BYTES, _DONT_WAIT)
                else:
                    data = self._receive(_RECEIVE_BYTES, _DONT_WAIT)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            buffer = self._buffer
            if not buffer:
                if len(data) >= HEADER_BYTES:
                    length, kind, call_id = read_header(data, 0)
                    if length + 4 == len(data):  # the usual case: one small frame, nothing copied
                        self.on_frame(self, kind, call_id, data, HEADER_BYTES, length + 4)
                        return True
            buffer += data
            if len(buffer) >= self._wanted:
                self._cut()
            return True

    def _cut(self):
        buffer = self._buffer
        offset = 0
        end = len(buffer)
        try:
            while True:
                if end - offset < HEADER_BYTES:
                    self._wanted = HEADER_BYTES
                    return
                length, kind, call_id = read_header(buffer, offset)
                if length < 5 or length > MAX_FRAME_BYTES:
                    raise ProtocolError('a frame of %d bytes; 5 to %d are allowed' % (length, MAX_FRAME_BYTES))
                if end - offset < length + 4:
                    self._wanted = length + 4
                    return
                start = offset + HEADER_BYTES
                offset += length + 4
                self.on_frame(self, kind, call_id, buffer, start, offset)
        finally:
            del buffer[:offset]

    def send(self, data):
        """Writes one frame. Ends the connection if the write fails, and reports no error to the caller."""
        try:
            with self._write_lock:
                self._send(data)
        except OSError:
            self.shut()
        except CallCancelled:  # raised before or after a frame, never within one
            raise
        except BaseException:  # raised by a signal handler of the user's code: half a frame may be sent
            self.shut()
            raise

    def shut(self):
        """
        Ends the connection in both directions.

        The control thread then notices the end and closes the socket.
        """
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def drop(self):
        """Drops the waiting calls and ignores those that were not read yet."""
        with self._read_lock:
            self.ended = True
            self.queued.clear()

    def close(self):
        """
        Closes the socket, after `shut` has unblocked all readers and writers.

        Waits until no thread uses it.
        """
        with self._read_lock, self._write_lock:
            self.socket.close()

    def cancel_early(self, call_id, reason):
        """Stores a CANCEL whose CALL was not read yet or has been answered."""
        if len(self._early_cancels) >= _EARLY_CANCELS:
            self._early_cancels.pop(next(iter(self._early_cancels)))
        self._early_cancels[call_id] = reason

    def take_early_cancel(self, call_id):
        """
        Returns the reason of a CANCEL that arrived before this call, or None.

        Removes the stored CANCEL.
        """
        return self._early_cancels.pop(call_id, None) if self._early_cancels else None
