"""The `context` parameter of handlers."""
import contextlib
import logging
import os
import re
import sys
import time

from .spans import Span, Spans

# Matches a request id. Its first digits are the span id, by which the service finds a parent.
_REQUEST = re.compile(r'^([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-')
_TRACEPARENT = re.compile(r'^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})')


class Facts(object):
    """The facts from INIT that are the same for all calls of an instance."""

    def __init__(self, message):
        self.instance_id = _text(message, 'instanceId')
        self.tenant = _text(message, 'tenant')
        self.namespace = _text(message, 'namespace')
        self.name = _text(message, 'name')
        self.function_name = _text(message, 'functionName')
        self.version = _text(message, 'version')
        self.memory_mb = int(message.get('memoryMb') or 0)
        self.cpu_millis = int(message.get('cpuMillis') or 0)
        self.state = {}
        #: Set for a durable agent, with its own `state`.
        self.durable = None


class Context(object):
    """
    The call and the instance in which it runs. Values are computed on access.

    In the initializer and in pre_stop there is no call: `trace_id`, `request_id`, `session_id` and `headers`
    are empty there, `get_stream` fails, and the time limit is that of the initializer, or None in pre_stop.
    """

    def __init__(self, facts, call=None, deadline=None):
        self._facts = facts
        self._call = call
        self._deadline = deadline

    # Members that describe the call.

    @property
    def trace_id(self):
        """The id in every log of the request to which this call belongs."""
        return self._header('traceId')

    @property
    def request_id(self):
        """The id of this call."""
        return self._header('requestId')

    @property
    def session_id(self):
        """The session that the caller named, or an empty text."""
        return self._header('sessionId')

    @property
    def traceparent(self):
        """
        W3C trace context with the caller's trace id and a span id of this call. Pass it on unchanged.

        Without a valid `traceparent` from the caller the trace id is random.
        """
        value = self.__dict__.get('_traceparent')
        if value is None:
            match = _TRACEPARENT.match(self._header('traceparent'))
            trace, flags = match.groups() if match else (os.urandom(16).hex(), '01')
            ours = _REQUEST.match(self.request_id)
            span = ''.join(ours.groups()) if ours else os.urandom(8).hex()
            value = self._traceparent = '00-%s-%s-%s' % (trace, span, flags)
        return value

    @property
    def headers(self):
        """The headers of the call as a new dict, with names in lower case. Empty without a call."""
        headers = self._call.header.get('headers') if self._call is not None else None
        return dict(headers) if headers else {}

    @property
    def deadline(self):
        """
        Time at which the call is cancelled, in seconds since the epoch as `time.time()`; None without a
        limit.
        """
        remaining = self._remaining_seconds()
        return None if remaining is None else time.time() + remaining

    def remaining_ms(self):
        """Returns the milliseconds until the call is cancelled, at least 0; None without a limit."""
        remaining = self._remaining_seconds()
        return None if remaining is None else max(0, int(remaining * 1000))

    def get_stream(self):
        """
        Returns the call's stream, with `write(value)` and `await awrite(value)`.

        Raises RuntimeError if the caller did not ask for text/event-stream, or if there is no call.
        """
        stream = self._call.stream() if self._call is not None else None
        if stream is None:
            raise RuntimeError('there is no stream: the caller did not ask for text/event-stream')
        return stream

    def span(self, name, attributes=None):
        """
        Returns a span: a named part of this call, for `with` and `async with`.

        The history of calls shows it. `attributes` is a dict of texts and numbers. Without a call, and above
        128 spans, the span does nothing.
        """
        call = self._call
        if call is None:
            return Span(None, name, attributes)
        if call.spans is None:
            call.__dict__.setdefault('spans', Spans())
        return Span(call.spans, name, attributes)

    # Members that describe the instance.

    @property
    def instance_id(self):
        """The UUID of the instance."""
        return self._facts.instance_id

    @property
    def tenant(self):
        """The tenant that owns the instance."""
        return self._facts.tenant

    @property
    def namespace(self):
        """The namespace of the instance."""
        return self._facts.namespace

    @property
    def name(self):
        """The name of the instance."""
        return self._facts.name

    @property
    def function_name(self):
        """The name of the registered function; empty for an agent that was created without one."""
        return self._facts.function_name

    @property
    def version(self):
        """The version of the function; empty without a function."""
        return self._facts.version

    @property
    def memory_mb(self):
        """The memory of the instance in megabytes."""
        return self._facts.memory_mb

    @property
    def cpu_millis(self):
        """The CPU share of the instance in thousandths of a core."""
        return self._facts.cpu_millis

    @property
    def state(self):
        """
        A dict that all calls share.

        It exists as long as the instance. That of a durable agent is saved before a call is answered, and it
        survives restarts; a call that fails leaves it as it was.
        """
        return self._facts.state

    def save(self):
        """
        Saves `state` now and returns when it is on disk. What is saved so stays if the call fails later.

        Raises RuntimeError if the agent is not durable, or if the connection to the service is lost.
        """
        self._durable().save(self._call)

    def set_alarm(self, name, at=None, after=None, every=None, cron=None, tz=None, payload=None, max_late_seconds=None):
        """
        Calls the agent later, also if it sleeps then. The same name replaces an alarm that is set.

        Exactly one of: `at` (a datetime, seconds since the epoch, or a text of RFC 3339), `after` (seconds),
        `every` (seconds, at least 5) and `cron` (five fields, in the zone `tz`, otherwise UTC). Saved with the
        call, so a call that fails sets none. Raises ValueError, and RuntimeError if the agent is not durable.
        """
        times = {'at': at, 'after': after, 'every': every, 'cron': cron, 'tz': tz}
        self._durable().set_alarm(name, times, payload, max_late_seconds)

    def cancel_alarm(self, name):
        """Cancels an alarm, with the save of the call. Without effect if there is none of this name."""
        self._durable().cancel_alarm(name)

    def alarms(self):
        """
        Returns the alarms of this agent, by name, with what this call has set and cancelled.

        Each is a dict with `name`, `id`, `at` (a text of RFC 3339), `payload`, `attempts`, `missed` and `failed`,
        and with `every`, `cron`, `tz`, `max_late_seconds`, `retry_at` and `last_error` where it has them. Raises
        ValueError if an alarm that the call has set is wrong, and RuntimeError if the agent is not durable.
        """
        return self._durable().list_alarms(self._call)

    @contextlib.contextmanager
    def keep_awake(self, seconds=300):
        """
        Keeps the agent awake during a `with` block, for 1 to 3600 seconds: work in a thread then is not cut off.

        Raises ValueError, and RuntimeError if the agent is not durable.
        """
        durable = self._durable()
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 1 <= seconds <= 3600:
            raise ValueError('keep_awake takes 1 to 3600 seconds')
        end = time.monotonic() + seconds
        durable.keep_awake(end)
        try:
            yield
        finally:
            durable.let_sleep(end)

    def _durable(self):
        if self._facts.durable is None:
            raise RuntimeError('this agent is not durable: create it with "durable": true')
        return self._facts.durable

    @property
    def is_waking(self):
        """True in the initializer and in the first call after a start with a saved state."""
        return self._facts.durable is not None and self._facts.durable.is_waking

    @property
    def wake(self):
        """
        Why the agent was started last: a dict with `reason`, `count`, `saved_at`, `slept_at` and
        `state_version`. Empty for an agent that is not durable.
        """
        return {} if self._facts.durable is None else dict(self._facts.durable.wake)

    @property
    def package(self):
        """
        The service in the function's name (`0@service@function`), or the namespace if the name has no
        service.
        """
        parts = self._facts.function_name.split('@')
        return parts[1] if len(parts) == 3 else self._facts.namespace

    def env(self, key, default=None):
        """Returns the environment variable `key`, or `default` if it is not set."""
        return os.environ.get(key, default)

    @property
    def logger(self):
        """A logging.Logger that writes to the instance's log (stderr) and adds the trace id to each line."""
        logger = self.__dict__.get('_logger')
        if logger is None:
            logger = self._logger = _CallLogger(self._facts.name or 'rookery', self.trace_id)
        return logger

    # Other names of these members, for functions that were written for other platforms.

    def getRequestID(self):
        """Returns `request_id`."""
        return self.request_id

    def getTraceID(self):
        """Returns `trace_id`."""
        return self.trace_id

    def getTraceParent(self):
        """Returns `traceparent`."""
        return self.traceparent

    def getSessionID(self):
        """Returns `session_id`."""
        return self.session_id

    def getInstanceID(self):
        """Returns `instance_id`."""
        return self.instance_id

    def getTenantID(self):
        """Returns `tenant`."""
        return self.tenant

    def getNamespace(self):
        """Returns `namespace`."""
        return self.namespace

    def getPackage(self):
        """Returns `package`."""
        return self.package

    def getName(self):
        """Returns `name`."""
        return self.name

    def getFunctionName(self):
        """Returns `function_name`."""
        return self.function_name

    def getVersion(self):
        """Returns `version`."""
        return self.version

    def getMemorySize(self):
        """Returns the memory of the instance in megabytes."""
        return self.memory_mb

    def getCPUNumber(self):
        """Returns the CPU share of the instance in thousandths of a core."""
        return self.cpu_millis

    def getRemainingTimeInMilliSeconds(self):
        """Returns `remaining_ms()`."""
        return self.remaining_ms()

    def getUserData(self, key, default=None):
        """Returns `env(key, default)`."""
        return self.env(key, default)

    def getHeaders(self):
        """Returns `headers`."""
        return self.headers

    def getLogger(self):
        """Returns `logger`."""
        return self.logger

    def getState(self):
        """Returns `state`."""
        return self.state

    def getStream(self):
        """Returns `get_stream()`."""
        return self.get_stream()

    def _header(self, name):
        value = self._call.header.get(name) if self._call is not None else None
        return value if isinstance(value, str) else ''

    def _remaining_seconds(self):
        end = self._deadline
        if self._call is not None:
            header = self._call.header
            remaining_ms = header.get('remainingMs')
            # A waiting call is read late, when the call before it has ended. Its time limit starts when it
            # was sent.
            began = header['atMs'] / 1000.0 if 'atMs' in header else self._call.arrived
            end = began + remaining_ms / 1000.0 if remaining_ms else None
        return None if end is None else end - time.monotonic()


class _Stderr(logging.StreamHandler):
    """Log handler that writes to the current value of `sys.stderr`."""

    def __init__(self):
        logging.Handler.__init__(self)
        self.setFormatter(_Formatter('%(asctime)s %(levelname)s [%(trace_id)s] %(message)s'))

    @property
    def stream(self):
        return sys.stderr


class _Formatter(logging.Formatter):
    converter = time.gmtime
    default_time_format = '%Y-%m-%dT%H:%M:%S'
    default_msec_format = '%s.%03dZ'


_stderr = _Stderr()


class _CallLogger(logging.Logger):
    def __init__(self, name, trace_id):
        logging.Logger.__init__(self, name, logging.DEBUG)
        self.addHandler(_stderr)
        self._trace_id = trace_id

    def makeRecord(self, *arguments, **named):
        record = logging.Logger.makeRecord(self, *arguments, **named)
        record.trace_id = self._trace_id or '-'
        return record


def _text(message, name):
    value = message.get(name)
    return value if isinstance(value, str) else ''
