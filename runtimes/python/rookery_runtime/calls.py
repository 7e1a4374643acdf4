"""The items that wait for the main thread: calls and initializations."""
from .protocol import ProtocolError
from .streams import Stream
from .values import decode


class Call(object):
    """One CALL. Also represents user code that runs without a call (initializer, pre_stop)."""

    #: Reason of the cancellation; None while the call is not cancelled.
    reason = None
    #: True while the signal handler has yet to raise CallCancelled in this call.
    due = False
    #: True once CallCancelled has been raised in this call.
    delivered = False
    #: True once the user code has ended. From then on only the answer may be sent for this call.
    answered = False
    #: The thread (threads.py) or the task (tasks.py) that runs this call.
    thread = None
    task = None
    #: The changed state (durable.py) of a call that has succeeded; None before, and after a failure.
    saving = None
    #: The spans (spans.py) of a call whose code has made some.
    spans = None
    _header = None
    _stream = None

    def __init__(self, connection, call_id, header_bytes, body, arrived):
        self.connection = connection
        self.id = call_id
        self.header_bytes = header_bytes
        self.body = body
        self.arrived = arrived

    @property
    def header(self):
        """Returns the fields of the header. Parses them on first use, since most handlers never read them."""
        header = self._header
        if header is None:
            header = decode(self.header_bytes)
            if not isinstance(header, dict):
                raise ProtocolError('the header of a CALL must be a JSON object')
            self._header = header
        return header

    def stream(self):
        """
        Returns the call's stream, or None when the caller did not request one.

        User code or the control thread creates the stream on first use. `setdefault` is atomic, so there is
        only one.
        """
        if self._stream is None and self.header.get('stream') is True:
            self.__dict__.setdefault('_stream', Stream(self, int(self.header.get('credit') or 0)))
        return self._stream

    def must_stop(self):
        """
        Returns True if the call's code has to end.

        An interrupted call whose code caught CallCancelled and continued does not have to end.
        """
        return self.reason is not None and (self.reason != 'interrupt' or not self.delivered)

    def wake_stream(self):
        """Wakes a writer that waits for credit, so that the writer sees the cancellation."""
        if self._stream is not None:
            self._stream.grant(0)


class InitRequest(object):
    """
    One INIT frame, or the expected content of an INIT that has not arrived.

    In the second case `connection` is None, and no client waits for the answer.
    """

    def __init__(self, connection, message):
        self.connection = connection
        self.message = message

    def answer(self, frame):
        if self.connection is not None:
            self.connection.send(frame)
