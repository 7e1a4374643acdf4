"""Several calls at once of a plain handler: a pool of as many threads as calls have needed so far."""
import queue
import threading

from .calls import InitRequest
from .execution import cancelled_frame, run
from .interrupt import CallCancelled, interrupt_thread, withdraw

_Queue = getattr(queue, 'SimpleQueue', queue.Queue)


class ThreadExecutor(object):
    reads_while_running = True

    def __init__(self, runtime, concurrency):
        self._runtime = runtime
        self._concurrency = concurrency
        self._work = _Queue()
        #: Calls that were handed over and are not answered yet.
        self._open = 0
        self._threads = 0
        self._changed = threading.Condition(threading.Lock())

    def run(self):
        runtime = self._runtime
        items = runtime.queue
        while not runtime.stopping:
            while items:
                item = items.popleft()
                if item.__class__ is InitRequest:
                    runtime.initialize(item)
                else:
                    self._hand_over(item)
            runtime.reader.wait()

    def interrupt(self, call, _again):
        with self._changed:  # while it is held, the thread cannot leave the call
            if call.thread is not None:
                call.delivered = True
                interrupt_thread(call.thread)

    def finish_all(self):
        """Waits for the running calls; the bound of the stop is the control thread's."""
        with self._changed:
            while self._open:
                self._changed.wait()

    def _hand_over(self, call):
        with self._changed:
            self._open += 1
            grow = self._open > self._threads and self._threads < self._concurrency
            if grow:
                self._threads += 1
        self._work.put(call)
        if grow:
            threading.Thread(target=self._serve, name='calls-%d' % self._threads, daemon=True).start()

    def _serve(self):
        runtime = self._runtime
        while True:
            call = self._work.get()
            if runtime.begin(call):
                runtime.finish(call, self._run(call) or cancelled_frame(call))
            with self._changed:
                self._open -= 1
                if not self._open:
                    self._changed.notify_all()

    def _run(self, call):
        """
        The answer's frame; None when an interrupt hit after the handler had ended. On return no interrupt is on its way: at most
        one is raised each second, and whichever line here it hits, one of the two leavings runs to its end.
        """
        frame = None
        try:
            try:
                call.thread = threading.get_ident()
                frame = run(call, self._runtime.program)
            finally:
                self._leave(call)
        except CallCancelled:
            self._leave(call)
        return frame

    def _leave(self, call):
        with self._changed:
            call.thread = None
        if call.delivered:
            withdraw(threading.get_ident())
