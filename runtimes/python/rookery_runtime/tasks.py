"""
Runs calls of an `async def` handler as tasks of one event loop.

The main thread runs the loop and reads.
"""
import types
from time import monotonic

from .calls import InitRequest
from .context import Context
from .execution import (
    UNFINISHED, cancelled_frame, failure_frame, own_loop, read_async_generator, read_generator, result_frame)
from .failures import log_exception
from .interrupt import enter_await, enter_with, interrupt_main
from .values import decode, encode

class TaskExecutor(object):
    def __init__(self, runtime, concurrency):
        self._runtime = runtime
        self._concurrency = concurrency
        self._running = 0
        self._loop = own_loop()

    def run(self):
        self._runtime.reader.use_loop(self._loop, self._start)
        self._loop.call_soon(self._start)
        self._run_loop()

    def interrupt(self, call, again):
        self._loop.call_soon_threadsafe(self._cancel, call)
        if again:  # the code blocks the loop, so the loop cannot cancel it
            interrupt_main(call, self._runtime.main_thread)

    def finish_all(self):
        while self._running:
            self._run_loop()

    def _run_loop(self):
        while True:
            try:
                self._loop.run_forever()
                return
            except BaseException as error:  # SystemExit of a task that the user's code started
                log_exception('a task of the event loop failed', error)

    def _start(self):
        runtime = self._runtime
        items = runtime.queue
        while items and self._running < self._concurrency and not runtime.stopping:
            item = items.popleft()
            if item.__class__ is InitRequest:
                runtime.initialize(item)
            elif runtime.begin(item):
                self._running += 1
                item.task = self._loop.create_task(self._drive(item))
                item.task.add_done_callback(lambda _task, call=item: self._done(call))
        if runtime.stopping:
            self._loop.stop()

    async def _drive(self, call):
        """
        Runs one call and returns its frame as the task's result.

        A task that is cancelled before its first step has no result; `_done` answers it.
        """
        started = monotonic()
        program = self._runtime.program
        try:
            event = decode(call.body)
            context = Context(program.facts, call)
            value = enter_with(call, program.function_of(call), event, context)
            if type(value) is types.CoroutineType or hasattr(value, '__await__'):
                value = await enter_await(call, value)
            if type(value) is types.AsyncGeneratorType:
                data = await read_async_generator(call, value, program)
            elif type(value) in UNFINISHED:
                data = read_generator(call, value, program)
            else:
                data = enter_with(call, encode, value)
            return result_frame(call, data, program, started)
        except BaseException as error:
            return failure_frame(call, error, started)

    def _done(self, call):
        self._running -= 1
        frame = None if call.task.cancelled() else call.task.result()
        self._runtime.finish(call, frame or cancelled_frame(call))
        self._start()

    def _cancel(self, call):
        if call.task is not None and not call.task.done():
            call.delivered = True
            call.task.cancel()
