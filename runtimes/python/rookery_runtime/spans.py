"""Spans: named parts of a call, which `context.span()` makes and which travel with the call's answer."""
import threading
from time import monotonic

from .failures import text_of
from .interrupt import protected
from .protocol import spans_frame

try:
    from contextvars import ContextVar  # novm
except ImportError:  # Python 3.6
    ContextVar = None

#: Limits of one call. They are those of `callSpans` in src/core/limits.ts.
MAX_SPANS = 128
MAX_NAME_CHARS = 128
MAX_ATTRIBUTES = 16
MAX_KEY_CHARS = 64
MAX_VALUE_CHARS = 256
MAX_CHARS = 32768

#: Characters that a span costs in addition to its texts.
_SPAN_CHARS = 32


class _Threads(threading.local):
    """The innermost open span of each thread, where the interpreter has no context variables."""

    value = None

    def get(self):
        return self.value

    def set(self, value):
        self.value = value


_current = ContextVar('rookery_span', default=None) if ContextVar is not None else _Threads()


class Spans(object):
    """The spans of one call. Threads and tasks of the call may add spans at the same time."""

    def __init__(self):
        self._lock = threading.Lock()
        self._spans = []
        self._left = MAX_CHARS
        self._dropped = 0

    def add(self, span):
        """Adds a span that starts now. Returns False and counts it if the call has too many."""
        with self._lock:
            cost = len(span.name) + _SPAN_CHARS
            if len(self._spans) >= MAX_SPANS or cost > self._left:
                self._dropped += 1
                return False
            self._left -= cost
            span.index = len(self._spans)
            self._spans.append(span)
            return True

    def set(self, span, key, value):
        with self._lock:
            known = len(str(span.attributes.get(key, '')))
            cost = len(key) + len(str(value)) - known
            is_new = key not in span.attributes
            if len(key) > MAX_KEY_CHARS or cost > self._left or (is_new and len(span.attributes) >= MAX_ATTRIBUTES):
                self._dropped += 1
                return
            self._left -= cost
            span.attributes[key] = value

    def frame(self, call_id, began):
        """Returns the SPANS frame of a call whose handler began at `began`. Open spans end now."""
        now = monotonic()
        with self._lock:
            spans = [span.record(began, now) for span in self._spans]
            return spans_frame(call_id, {'spans': spans, 'dropped': self._dropped})


class Span(object):
    """
    A named part of a call. Use it with `with` or `async with`; an exception marks it as failed.

    Outside of a call, and above the limits, a span does nothing.
    """

    def __init__(self, spans, name, attributes):
        self._spans = spans
        self.name = _plain(name)[:MAX_NAME_CHARS]
        self.attributes = {}
        self.index = None
        self._parent = None
        self._outer = None
        self._token = None
        self._started = None
        self._ended = None
        self._error = None
        self._given = attributes

    @protected
    def set(self, name, value):
        """Sets an attribute: a text, a number or a bool. Other values become texts; None sets nothing."""
        if self.index is None or value is None:
            return self
        if isinstance(value, float) and not _MIN < value < _MAX:
            value = str(value)
        elif not isinstance(value, (bool, int, float)) or (isinstance(value, int) and abs(value) > _MAX_INT):
            value = _plain(value)[:MAX_VALUE_CHARS]
        self._spans.set(self, _plain(name), value)
        return self

    @protected
    def __enter__(self):
        self._outer = outer = _current.get()
        if self._spans is None or self.index is not None:
            return self
        if outer is not None and outer._spans is self._spans:
            self._parent = outer.index
        self._started = monotonic()
        if self._spans.add(self):
            _current.set(self)
            for name, value in dict(self._given or {}).items():
                self.set(name, value)
        return self

    @protected
    def __exit__(self, kind, error, _trace):
        if self.index is None or self._ended is not None:
            return
        self._ended = monotonic()
        if error is not None:
            self._error = text_of(error)[:MAX_VALUE_CHARS]
        if _current.get() is self:
            _current.set(self._outer)

    async def __aenter__(self):
        return self.__enter__()

    async def __aexit__(self, kind, error, trace):
        self.__exit__(kind, error, trace)

    def record(self, began, now):
        start = max(0, self._started - began)
        record = {
            'name': self.name,
            'startMicros': int(start * 1000000),
            'micros': int(max(0, (self._ended or now) - self._started) * 1000000),
        }
        if self._parent is not None:
            record['parent'] = self._parent
        if self.attributes:
            record['attributes'] = self.attributes
        if self._error is not None:
            record['error'] = self._error
        return record


_MIN, _MAX = -1e300, 1e300
#: The largest integer that JSON readers keep exactly.
_MAX_INT = 2 ** 53


def _plain(value):
    """Returns a text whose type is `str` itself. Never raises, even if the value's own code does."""
    try:
        return str.__str__(str(value))
    except Exception as broken:  # __str__ is user code
        return '<%s>' % type(broken).__name__
