"""Runs one call in the current thread: decodes the event, calls the handler, makes the answer's frame."""
import asyncio
import threading
import types
from time import monotonic

from . import protocol
from .forked import leave_child
from .context import Context
from .durable import UNCHANGED
from .failures import CallFailure, log_exception, name_of_class, text_of
from .interrupt import REASONS, CallCancelled, enter, enter_await, enter_with
from .values import NotJson, decode, encode

#: Types of results that must be run or read before they are values. Compared exactly: one lookup per call.
UNFINISHED = frozenset((types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType))

_loops = threading.local()


class Program(object):
    """The loaded user code with the facts that every call needs."""

    #: Functions that run instead of the handler, by the `entry` of a call; None: there are none.
    entries = None

    def __init__(self, handler, pre_stop, facts, max_result_bytes):
        self.handler = handler
        self.pre_stop = pre_stop
        self.facts = facts
        self.max_result_bytes = max_result_bytes

    def function_of(self, call):
        """Returns the function of a call as `f(event, context)`. Reads the header only if there are entries."""
        if self.entries is None:
            return self.handler
        return self.entries.get(call.header.get('entry'), self.handler)


def run(call, program):
    """
    Runs a plain handler and returns the answer's frame.

    Raises only an interrupt that arrives after the user's code has ended (see threads.py).
    """
    started = monotonic()
    try:
        value = enter(call, program.function_of(call), decode(call.body), Context(program.facts, call))
        if type(value) in UNFINISHED:
            data = _finish(call, value, program)
        else:
            data = enter_with(call, encode, value)
        return result_frame(call, data, program, started)
    except BaseException as error:
        return failure_frame(call, error, started)


def result_frame(call, data, program, started):
    """
    Returns the RESULT frame of a call whose handler has returned `data` as JSON.

    Raises CallCancelled if the call was cancelled meanwhile, except by an interrupt. Raises CallFailure if
    the data exceeds the limit.
    """
    durable = program.facts.durable
    change = UNCHANGED if durable is None else enter_with(call, durable.prepare)
    if call.reason is not None and call.reason != 'interrupt':
        raise CallCancelled(REASONS[call.reason])
    if len(data) > program.max_result_bytes:
        raise too_large(len(data), program)
    call.saving = change
    frame = protocol.result_frame(call.id, int((monotonic() - started) * 1000000), data)
    return frame if call.spans is None else _with_spans(call, frame, started)


def _with_spans(call, frame, started):
    return call.spans.frame(call.id, started) + frame if call.connection.takes_spans else frame


def failure_frame(call, error, started):
    """Returns the ERROR frame of a call that ended with an exception. Writes the traceback to the log."""
    leave_child(error)
    call.saving = None
    try:
        frame = _failure_frame(call, error, started)
        return frame if call.spans is None else _with_spans(call, frame, started)
    except BaseException as broken:
        if type(broken) is CallCancelled:
            raise
        # The exception's own code has failed.
        return _handler_frame(call, name_of_class(type(error)), started)


def _handler_frame(call, text, started):
    micros = int((monotonic() - started) * 1000000)
    return protocol.error_frame(call.id, protocol.CODE_HANDLER, 'Fail to run user call handler. err: %s.' % text, micros)


def _failure_frame(call, error, started):
    micros = int((monotonic() - started) * 1000000)
    if isinstance(error, CallFailure):
        return protocol.error_frame(call.id, error.code, error.message, micros)
    if isinstance(error, NotJson):
        return protocol.error_frame(
            call.id, protocol.CODE_NOT_JSON, 'the returned value cannot be turned into JSON: %s' % error, micros)
    if call.reason is not None and isinstance(error, (CallCancelled, asyncio.CancelledError)):
        return cancelled_frame(call, micros)
    try:
        log_exception('call failed, trace id %s' % (call.header.get('traceId') or '-'), error)
    except BaseException as broken:  # a header that is not JSON, or too little memory
        log_exception('call failed', broken)
    return _handler_frame(call, text_of(error), started)


def cancelled_frame(call, micros=None):
    """Returns the ERROR frame of a cancelled call."""
    if call.reason == 'timeout':
        return protocol.error_frame(call.id, protocol.CODE_TIMEOUT, REASONS['timeout'], micros)
    message = 'Fail to run user call handler. err: CallCancelled: %s.' % REASONS.get(call.reason, 'the call was cancelled')
    return protocol.error_frame(call.id, protocol.CODE_HANDLER, message, micros)


def too_large(size, program):
    return CallFailure(
        protocol.CODE_TOO_LARGE, 'response body size %d exceeds the limit of %d' % (size, program.max_result_bytes))


def run_hook(call, function, context):
    """Runs an initializer or pre_stop, which may be `async def`."""
    value = enter_with(call, function, context)
    if hasattr(value, '__await__'):
        run_awaitable(call, value)


def own_loop():
    """Returns the event loop of this thread, and creates it on first use."""
    loop = getattr(_loops, 'loop', None)
    if loop is None:
        loop = _loops.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop


def run_awaitable(call, awaitable):
    """Runs an awaitable to its end in this thread and returns its result."""
    loop = own_loop()
    task = loop.create_task(enter_await(call, awaitable))
    call.task = task
    try:
        return enter_with(call, loop.run_until_complete, task)
    except BaseException:
        if not task.done():  # interrupted inside the loop's own code: the loop may be inconsistent
            _loops.loop = None
        raise


class Collector(object):
    """
    Collects the values of a generator as one JSON array, for callers without a stream.

    `add` raises CallFailure when the array exceeds the size limit of a result.
    """

    def __init__(self, program):
        self._program = program
        self._items = []
        self._size = 2

    def add(self, value):
        data = encode(value)
        self._size += len(data) + (1 if self._items else 0)
        if self._size > self._program.max_result_bytes:
            raise too_large(self._size, self._program)
        self._items.append(data)

    def data(self):
        return b'[' + b','.join(self._items) + b']'


def _finish(call, value, program):
    """Returns the outcome of a generator or a coroutine as JSON bytes."""
    if isinstance(value, types.GeneratorType):
        return read_generator(call, value, program)
    if isinstance(value, types.AsyncGeneratorType):
        return run_awaitable(call, read_async_generator(call, value, program))
    result = run_awaitable(call, value)
    return _finish(call, result, program) if type(result) in UNFINISHED else enter_with(call, encode, result)


def _yielded(value):
    """
    Returns a generator's value for its stream.

    Raises NotJson for bytes, as for a call without a stream.
    """
    if isinstance(value, (bytes, bytearray)):
        encode(value)
    return value


def read_generator(call, generator, program):
    """
    Sends a generator's values to the stream, or collects them into a JSON array if there is no stream.

    With a stream, the result is the generator's return value.
    """
    stream = call.stream()
    collector = Collector(program)
    try:
        while True:
            try:
                value = enter_with(call, next, generator)
            except StopIteration as end:
                return collector.data() if stream is None else enter_with(call, encode, end.value)
            if stream is not None:
                enter_with(call, stream.write, _yielded(value))
            else:
                enter_with(call, collector.add, value)
    finally:
        enter_with(call, generator.close)


async def read_async_generator(call, generator, program):
    """
    Sends an async generator's values to the stream, or collects them into a JSON array if there is no stream.

    With a stream, the result is `null`, since an async generator has no return value.
    """
    stream = call.stream()
    collector = Collector(program)
    try:
        while True:
            try:
                value = await enter_await(call, generator.__anext__())
            except StopAsyncIteration:
                return collector.data() if stream is None else b'null'
            if stream is not None:
                await stream.awrite(_yielded(value))
            else:
                enter_with(call, collector.add, value)
    finally:
        await generator.aclose()


