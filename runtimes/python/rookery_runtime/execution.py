"""One call, from the event's bytes to the frame of its answer, in the thread of the caller."""
import asyncio
import threading
import types
from time import monotonic

from . import protocol
from .context import Context
from .failures import CallFailure, log_exception, name_of_class, text_of
from .interrupt import REASONS, CallCancelled, enter, enter_await, enter_with
from .values import NotJson, decode, encode

#: Results that have to be run or read before they are values. An exact type: one look per call.
UNFINISHED = frozenset((types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType))

_loops = threading.local()


class Program(object):
    """The user's code, loaded: what every call needs."""

    def __init__(self, handler, pre_stop, facts, max_result_bytes):
        self.handler = handler
        self.pre_stop = pre_stop
        self.facts = facts
        self.max_result_bytes = max_result_bytes


def run(call, program):
    """Runs a plain handler; the answer's frame. Raises nothing but what arrives after the user's code (threads.py)."""
    started = monotonic()
    try:
        value = enter(call, program.handler, decode(call.body), Context(program.facts, call))
        if type(value) in UNFINISHED:
            data = _finish(call, value, program)
        else:
            data = enter_with(call, encode, value)
        return result_frame(call, data, program, started)
    except BaseException as error:
        return failure_frame(call, error, started)


def result_frame(call, data, program, started):
    """The answer of a call whose handler has returned `data` as JSON."""
    if call.reason is not None and call.reason != 'interrupt':
        raise CallCancelled(REASONS[call.reason])
    if len(data) > program.max_result_bytes:
        raise too_large(len(data), program)
    return protocol.result_frame(call.id, int((monotonic() - started) * 1000000), data)


def failure_frame(call, error, started):
    """The answer of a call that ended with an exception; the traceback goes to the log."""
    try:
        return _failure_frame(call, error, started)
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
    except BaseException as broken:  # a header that is not JSON, memory that is at its end
        log_exception('call failed', broken)
    return _handler_frame(call, text_of(error), started)


def cancelled_frame(call, micros=None):
    """The answer of a call that was cancelled."""
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
    """This thread's event loop."""
    loop = getattr(_loops, 'loop', None)
    if loop is None:
        loop = _loops.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop


def run_awaitable(call, awaitable):
    """The result of an awaitable, run to its end in this thread."""
    loop = own_loop()
    task = loop.create_task(enter_await(call, awaitable))
    call.task = task
    try:
        return enter_with(call, loop.run_until_complete, task)
    except BaseException:
        if not task.done():  # cut in the middle of the loop's own code: that loop cannot be trusted again
            _loops.loop = None
        raise


class Collector(object):
    """The values of a generator whose caller takes no stream, as one JSON array within the limit of a result."""

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
    """JSON of a generator's or a coroutine's outcome."""
    if isinstance(value, types.GeneratorType):
        return read_generator(call, value, program)
    if isinstance(value, types.AsyncGeneratorType):
        return run_awaitable(call, read_async_generator(call, value, program))
    result = run_awaitable(call, value)
    return _finish(call, result, program) if type(result) in UNFINISHED else enter_with(call, encode, result)


def read_generator(call, generator, program):
    """Streams a generator's values, or collects them. Its own return value is the result of a stream."""
    stream = call.stream()
    collector = Collector(program)
    try:
        while True:
            try:
                value = enter_with(call, next, generator)
            except StopIteration as end:
                return collector.data() if stream is None else enter_with(call, encode, end.value)
            if stream is not None:
                enter_with(call, stream.write, value)
            else:
                enter_with(call, collector.add, value)
    finally:
        enter_with(call, generator.close)


async def read_async_generator(call, generator, program):
    """The same for an async generator."""
    stream = call.stream()
    collector = Collector(program)
    try:
        while True:
            try:
                value = await enter_await(call, generator.__anext__())
            except StopAsyncIteration:
                return collector.data() if stream is None else b'null'
            if stream is not None:
                await stream.awrite(value)
            else:
                enter_with(call, collector.add, value)
    finally:
        await generator.aclose()


