"""Streams: CHUNK frames under the credit of their reader."""
import asyncio
import threading

from .interrupt import cancelled, protected
from .protocol import CHUNK, MAX_FRAME_BYTES, frame
from .values import encode

#: Longer than a connection may take for a chunk: see Connection.
_LAST_CHUNK_SECONDS = 60
#: What a frame has room for.
_MAX_CHUNK_BYTES = MAX_FRAME_BYTES - 5


def chunk_bytes(value):
    """One stream event: a text as it is, bytes that are UTF-8 as they are, other values as JSON; None is no event."""
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
    """What `context.get_stream()` gives."""

    def __init__(self, call, credit):
        self._call = call
        self._credit = credit
        self._changed = threading.Condition(threading.Lock())
        self._waiters = []
        #: Threads that write a chunk now. By name, and not counted: one that is interrupted there stays in it.
        self._writers = set()

    @protected
    def write(self, value):
        """
        Sends one event: a text as it is, other values as JSON, None nothing. Blocks while the reader is behind; raises
        CallCancelled when the call was cancelled. Code in `async def` uses `awrite`, since this would block its loop.
        """
        data = chunk_bytes(value)
        if data is None:
            return
        call = self._call
        with self._changed:
            while self._credit <= 0 and not self._has_ended():
                self._changed.wait()
            self._take(len(data))
        self._send(data)

    async def awrite(self, value):
        """`write` for `async def`: waits without blocking the loop."""
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
        """More credit; 0 only wakes the writer. From the control thread."""
        with self._changed:
            self._credit += count
        self._wake()

    def end(self):
        """Returns when no chunk can follow any more, of a thread that the handler has left behind either. The call is `answered` then."""
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
            except RuntimeError:  # the loop was closed, its writer is gone
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
        """With the lock, before a chunk is written. Fails when none may be."""
        call = self._call
        if call.must_stop():
            call.delivered = True
            raise cancelled(call)
        if call.answered or call.connection.running.get(call.id) is not call:
            raise RuntimeError('the stream has ended: its call was answered')
        self._credit -= max(1, size)
        self._writers.add(threading.get_ident())
