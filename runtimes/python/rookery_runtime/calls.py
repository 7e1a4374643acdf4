"""What waits for the main thread: calls and initializations."""
from .protocol import ProtocolError
from .streams import Stream
from .values import decode


class Call(object):
    """One CALL, and also what stands for it where user code runs without one (initializer, pre_stop)."""

    #: Why it was cancelled; None = it was not.
    reason = None
    #: The signal handler shall raise CallCancelled in it.
    due = False
    #: It has been raised at least once.
    delivered = False
    #: Its code has ended, and nothing more may be sent for it but its answer.
    answered = False
    #: Its thread (threads.py), its task (tasks.py).
    thread = None
    task = None
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
        """The header's fields; parsed when somebody asks, since most handlers never do."""
        header = self._header
        if header is None:
            header = decode(self.header_bytes)
            if not isinstance(header, dict):
                raise ProtocolError('the header of a CALL must be a JSON object')
            self._header = header
        return header

    def stream(self):
        """
        The call's stream; None when its caller did not ask for one. Made by whoever needs it first: user code or the control
        thread (setdefault is one step, so there is one).
        """
        if self._stream is None and self.header.get('stream') is True:
            self.__dict__.setdefault('_stream', Stream(self, int(self.header.get('credit') or 0)))
        return self._stream

    def must_stop(self):
        """Whether its code shall end: not any more where it was interrupted, knows it, and chose to go on."""
        return self.reason is not None and (self.reason != 'interrupt' or not self.delivered)

    def wake_stream(self):
        """Lets a writer that waits for credit see that the call was cancelled."""
        if self._stream is not None:
            self._stream.grant(0)


class InitRequest(object):
    """One INIT frame, or what it will say (`connection` is None then, and nobody waits for the answer)."""

    def __init__(self, connection, message):
        self.connection = connection
        self.message = message

    def answer(self, frame):
        if self.connection is not None:
            self.connection.send(frame)
