"""Streams: sends CHUNK frames within the credit that their reader grants."""
import asyncio
import threading

from .interrupt import cancelled, protected
from .protocol import CHUNK, MAX_FRAME_BYTES, frame
from .values import encode

#: Wait for writers at the end of a stream. Longer than the limit of a connection's send: see Connection.
_LAST_CHUNK_SECONDS = 60
#: Limit for the payload of a single frame.
_MAX_CHUNK_BYTES = MAX_FRAME_BYTES - 5


def chunk_bytes(value):
    """
    Returns the bytes of one stream event, or None if `value` is None.

    Text is sent as it is, bytes if they are valid UTF-8, other values as JSON. Raises ValueError if the bytes
    are not UTF-8 or exceed the limit, and NotJson.
    """
    if value is None:
        return None
    if isinstance(value, str):
        data = value.encode('utf-8')
    elif isinstance(value, (bytes, bytearray)):
        data = bytes(value)
        data.decode('utf-8')
    else:
        data = encode(value)
    if len(data) > _MAX_CHUNK_BYTES:
        raise ValueError('a stream event of %d bytes exceeds the limit of %d' % (len(data), _MAX_CHUNK_BYTES))
    return data


class Stream(object):
    """The stream of a single call, which `context.get_stream()` returns."""

    def __init__(self, call, credit):
        self._call = call
        self._credit = credit
        self._changed = threading.Condition(threading.Lock())
        self._waiters = []
        #: Ids of the threads that write a chunk now. A set, because an interrupted thread may not remove
        #: itself.
        self._writers = set()

    @protected
    def write(self, value):
        """
        Sends one event: text and UTF-8 bytes as they are, other values as JSON. None sends nothing.

        Blocks while the reader is behind. Raises CallCancelled when the call was cancelled, ValueError for an
        event of more than about 7 MiB, and RuntimeError when the call has been answered. Code in `async def`
        uses `awrite`, because `write` would block its loop.
        """
        data = chunk_bytes(value)
        if data is not None:
            self._write(data)

    @protected
    def write_raw(self, data):
        """Sends bytes that need not be text, at most 7 MiB, for a reader that asked for bytes. Otherwise like `write`."""
        self._write(data)

    def _write(self, data):
        with self._changed:
            while self._credit <= 0 and not self._has_ended():
                self._changed.wait()
            self._take(len(data))
        self._send(data)

    async def awrite(self, value):
        """Sends one event like `write`, for `async def`: waits without blocking the event loop."""
        data = chunk_bytes(value)
        if data is None:
            return
        call = self._call
        while True:
            with self._changed:
                if self._credit > 0 or self._has_ended():
                    self._take(len(data))
                    break
                waiter = (asyncio.get_event_loop(), asyncio.Event())
                self._waiters.append(waiter)
            await waiter[1].wait()
        self._send(data)

    def grant(self, count):
        """Adds credit. A `count` of 0 only wakes the writers. Called from the control thread."""
        with self._changed:
            self._credit += count
        self._wake()

    def end(self):
        """
        Waits until no thread can send another chunk, at most 60 s.

        Such a thread may have been started by the handler. Called after the call was marked `answered`.
        """
        self._wake()
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: not self._writers - {me}, _LAST_CHUNK_SECONDS)

    def _wake(self):
        with self._changed:
            self._changed.notify_all()
            waiters = self._waiters
            self._waiters = []
        for loop, event in waiters:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # the loop was closed and its writer has ended
                pass

    def _send(self, data):
        call = self._call
        try:
            call.connection.send(frame(CHUNK, call.id, data))
        finally:
            with self._changed:
                self._writers.discard(threading.get_ident())
                if call.answered:
                    self._changed.notify_all()

    def _has_ended(self):
        return self._call.answered or self._call.must_stop()

    def _take(self, size):
        """
        Accounts for one chunk before it is written. Called with the lock `_changed` held.

        Raises CallCancelled or RuntimeError if no chunk may be written.
        """
        call = self._call
        if call.must_stop():
            call.delivered = True
            raise cancelled(call)
        if call.answered or call.connection.running.get(call.id) is not call:
            raise RuntimeError('the stream has ended: its call was answered')
        self._credit -= max(1, size)
        self._writers.add(threading.get_ident())
