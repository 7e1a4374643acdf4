"""One connection of a control plane: bytes in, frames out."""
import socket
import struct
import threading

from .interrupt import CallCancelled
from .protocol import HEADER_BYTES, MAX_FRAME_BYTES, ProtocolError, read_header

_DONT_WAIT = socket.MSG_DONTWAIT
_RECEIVE_BYTES = 64 * 1024
_RECEIVE_LARGE_BYTES = 512 * 1024
#: A control plane that takes nothing for so long has lost its connection.
_SEND_TIMEOUT_SECONDS = 30
#: CANCELs that came before their CALL was read; more than the kernel's buffers hold calls is not needed.
_EARLY_CANCELS = 4096


class Connection(object):
    """
    `receive` may be called by any thread: it hands frames on in the order of the bytes. `send` may be called by any
    thread: frames are written whole. `queued` and `running` are the open calls of a data connection: a call is put in
    `running` before it is taken from `queued`, and whoever takes it from `queued` decides what becomes of it.
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
        self.ended = False
        self.paused = False
        self.is_retired = False
        self.queued = {}
        self.running = {}
        self._early_cancels = {}
        #: f(connection, kind, call_id, data, start, end): the payload is data[start:end].
        self.on_frame = on_frame
        self._buffer = bytearray()
        self._wanted = HEADER_BYTES
        self._receive = sock.recv
        self._send = sock.sendall
        self._read_lock = threading.Lock()
        self._write_lock = threading.Lock()

    def receive(self):
        """Reads once and hands on every frame that is whole. False: the connection is of no use any more."""
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
        """Writes one frame. A connection that cannot take it is ended; nobody learns of it, since nobody is there."""
        try:
            with self._write_lock:
                self._send(data)
        except OSError:
            self.shut()
        except CallCancelled:  # comes before or after a frame, never inside of one
            raise
        except BaseException:  # of a signal handler of the user's code: half a frame may be gone
            self.shut()
            raise

    def shut(self):
        """Ends the connection in both directions; the control thread sees it and closes it."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def drop(self):
        """Drops the calls that wait, and those that were not read yet."""
        with self._read_lock:
            self.ended = True
            self.queued.clear()

    def close(self):
        """After `shut`, so that nobody stays blocked in it. Waits until nobody uses the descriptor."""
        with self._read_lock, self._write_lock:
            self.socket.close()

    def cancel_early(self, call_id, reason):
        """Notes a CANCEL whose CALL was not read yet, or was answered already."""
        if len(self._early_cancels) >= _EARLY_CANCELS:
            self._early_cancels.pop(next(iter(self._early_cancels)))
        self._early_cancels[call_id] = reason

    def take_early_cancel(self, call_id):
        """The reason of a CANCEL that came before this call; None when none did."""
        return self._early_cancels.pop(call_id, None) if self._early_cancels else None
