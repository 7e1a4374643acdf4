"""Runs calls one at a time on the main thread, which also reads them: the fast path."""
from .calls import InitRequest
from .execution import run
from .interrupt import interrupt_main


class InlineExecutor(object):
    """Executor for a concurrency of 1. Also used before INIT, and when the code could not be loaded."""

    def __init__(self, runtime):
        self._runtime = runtime

    def run(self):
        """Runs until the runtime stops or has another executor."""
        runtime = self._runtime
        queue = runtime.queue
        wait = runtime.reader.wait
        while not runtime.stopping:
            while queue:
                item = queue.popleft()
                if item.__class__ is InitRequest:
                    runtime.initialize(item)
                    if runtime.executor is not self:
                        return
                elif runtime.begin(item):
                    runtime.finish(item, run(item, runtime.program))
                if runtime.stopping:
                    return
            wait()

    def interrupt(self, call, _again):
        interrupt_main(call, self._runtime.main_thread)

    def finish_all(self):
        """Does nothing: no call runs when the main thread calls this."""
