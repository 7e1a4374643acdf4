"""
Runs several calls of a plain handler at once, in a pool of threads.

A thread of the pool reads until it has a call. Then it lets the next thread read, and runs the call. So a
short call changes threads once, and a long one delays no other call. A thread is started when all others run
calls. The main thread runs no calls: otherwise state that user code keeps per thread would exist for some
calls only.
"""
import threading

from .calls import InitRequest
from .execution import cancelled_frame, run
from .failures import log, log_exception
from .interrupt import CallCancelled, interrupt_thread, withdraw
from .reading import make_pipe

#: Delay before the main thread tries again to start the first thread.
_NO_THREAD_MS = 1000


class ThreadExecutor(object):
    def __init__(self, runtime, concurrency):
        self._runtime = runtime
        self._concurrency = concurrency
        #: Held by the thread that reads.
        self._reading = threading.Lock()
        self._threads = 0
        #: Calls that have begun and are not answered.
        self._running = set()
        self._changed = threading.Condition(threading.Lock())
        #: Created here, so that a failure fails the initialization.
        self._pipe = make_pipe()
        self._is_shared = False

    # Methods for the main thread.

    def run(self):
        reader = self._runtime.reader
        if not self._is_shared:
            self._is_shared = True
            reader.share(self._pipe)
        while not self._runtime.stopping:
            if not self._threads:
                self._start_thread()
            reader.pass_on(-1 if self._threads else _NO_THREAD_MS)

    def finish_all(self):
        """Waits for the running calls. The control thread limits the time of the stop."""
        with self._changed:
            while self._running:
                self._changed.wait()

    # Methods for the control thread.

    def interrupt(self, call, _again):
        with self._changed:  # while the lock is held, the thread cannot leave the call
            if call.thread:
                call.delivered = True
                interrupt_thread(call.thread)

    # Methods for the threads of the pool.

    def _start_thread(self):
        self._threads += 1
        try:
            threading.Thread(target=self._serve, name='calls-%d' % self._threads, daemon=True).start()
        except RuntimeError as error:  # the limit of processes is reached: the other threads continue
            self._threads -= 1
            log('rookery_runtime: %s' % error)

    def _serve(self):
        while True:
            try:
                self._answer(self._next())
            except BaseException as error:  # a fault of the runtime must not end the instance
                log_exception('rookery_runtime: a fault in a thread of calls', error)

    def _next(self):
        """Returns the next call. Reads the connections if no other thread does."""
        runtime = self._runtime
        queue = runtime.queue
        with self._reading:
            while True:
                if not queue:
                    runtime.reader.wait()
                    continue
                item = queue.popleft()
                if item.__class__ is InitRequest:
                    runtime.initialize(item)
                    continue
                # 0 is neither None nor the id of a thread that may be interrupted: see `Runtime._recover`.
                item.thread = 0
                self._running.add(item)
                if self._threads <= len(self._running) and self._threads < self._concurrency:
                    self._start_thread()
                return item

    def _answer(self, call):
        runtime = self._runtime
        try:
            if runtime.begin(call):
                frame = self._run(call)
                runtime.finish(call, frame or cancelled_frame(call))
        finally:
            self._running.discard(call)
            if runtime.stopping:
                with self._changed:
                    self._changed.notify_all()

    def _run(self, call):
        """
        Returns the answer's frame, or None if an interrupt was raised after the handler had ended.

        No interrupt is pending on return. Interrupts are at least one second apart. So on whichever line one
        is raised here, one of the two calls of `_leave` runs to its end.
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
            call.thread = 0
        if call.delivered:
            withdraw(threading.get_ident())
