"""
Several calls at once of a plain handler, without a change of threads for each.

A pool of as many threads as calls have needed so far, and one baton. Who has it reads the connections and takes calls from the
queue; while a thread runs a call its baton lies there for others. As long as calls are short the same thread takes it up
again: nothing changes hands. When calls are long, one that waits is rung for and takes the baton at once, so that calls run
beside each other; and when a call gets long all of a sudden, one that watches takes it. The main thread runs no calls: what code
keeps for each thread would else be there for some calls and not for others.
"""
import collections
import threading
from time import monotonic

from .calls import InitRequest
from .execution import cancelled_frame, run
from .failures import log, log_exception
from .interrupt import CallCancelled, interrupt_thread, withdraw
from .reading import make_pipe

#: A change of threads is nothing beside a call that takes longer.
_SHORT_SECONDS = 0.00025
#: How often who watches looks whether the call that it saw still runs.
_WATCH_SECONDS = 0.002
#: When not even one thread may be started.
_NO_THREAD_MS = 1000
#: Looks at nothing, after which nobody watches until the next call.
_QUIET_LOOKS = 8

#: Long calls raise the score, short ones lower it by one; above the limit the baton is handed on before a call runs. One
#: call that was long because the machine was busy changes nothing.
_LONG_SCORE = 8
_WATCHED_SCORE = 16
_SCORE_LIMIT = 8
_MAX_SCORE = 64


class ThreadExecutor(object):
    def __init__(self, runtime, concurrency):
        self._runtime = runtime
        self._concurrency = concurrency
        #: Holds one item while nobody has the baton; taking it out is one step.
        self._baton = collections.deque()
        #: Released by who has the baton and wants another thread to take it, or to watch.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._threads = 0
        #: Threads that wait for the bell.
        self._idle = 0
        self._is_watched = False
        #: Counts calls, so that who watches sees whether it is still the same.
        self._number = 0
        #: As if its last calls had been long, until they are known to be short.
        self._score = 2 * _SCORE_LIMIT
        #: Calls that have begun and are not answered.
        self._running = set()
        self._changed = threading.Condition(threading.Lock())
        #: Made here, where a failure is one of the initialization.
        self._pipe = make_pipe()
        self._is_shared = False

    # The main thread.

    def run(self):
        reader = self._runtime.reader
        if not self._is_shared:
            self._is_shared = True
            reader.share(self._pipe)
            self._baton.append(None)
        while not self._runtime.stopping:
            if not self._threads:
                self._ring()
            # Without any thread, since there may be none now: it tries again.
            reader.pass_on(-1 if self._threads else _NO_THREAD_MS)

    def finish_all(self):
        """Waits for the running calls; the bound of the stop is the control thread's."""
        with self._changed:
            while self._running:
                self._changed.wait()

    # The control thread.

    def interrupt(self, call, _again):
        with self._changed:  # while it is held, the thread cannot leave the call
            if call.thread:
                call.delivered = True
                interrupt_thread(call.thread)

    # The pool.

    def _serve(self):
        self._wait_for_baton()
        while True:
            try:
                self._lead()
            except BaseException as error:  # a fault of ours must not end the instance
                log_exception('rookery_runtime: a fault in a thread of calls', error)

    def _lead(self):
        """With the baton."""
        runtime = self._runtime
        queue = runtime.queue
        while True:
            if not queue:
                runtime.reader.wait()
                continue
            item = queue.popleft()
            if item.__class__ is InitRequest:
                runtime.initialize(item)
                continue
            self._running.add(item)
            # Neither that of no thread, nor one that may be interrupted: see `Runtime._recover`.
            item.thread = 0
            self._number += 1
            self._baton.append(None)
            try:
                if self._score > _SCORE_LIMIT or not self._is_watched:
                    self._ring()
                if runtime.begin(item):
                    started = monotonic()
                    frame = self._run(item)
                    self._count(monotonic() - started)
                    runtime.finish(item, frame or cancelled_frame(item))
            finally:
                self._running.discard(item)
                if runtime.stopping:
                    with self._changed:
                        self._changed.notify_all()
                if not self._take():
                    self._follow()

    def _count(self, seconds):
        if seconds > _SHORT_SECONDS:
            self._score = min(_MAX_SCORE, self._score + _LONG_SCORE)
        elif self._score:
            self._score -= 1

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
            call.thread = 0
        if call.delivered:
            withdraw(threading.get_ident())

    # Changes of the baton.

    def _take(self):
        try:
            self._baton.pop()
        except IndexError:
            return False
        return True

    def _ring(self):
        """Has a thread that waits take the baton, or watch; a new one when none waits and there may be more."""
        with self._changed:
            grow = not self._idle and self._threads < self._concurrency
            if grow:
                self._threads += 1
                self._idle += 1
        if self._bell.locked():
            try:
                self._bell.release()
            except RuntimeError:  # it was rung meanwhile
                pass
        if grow:
            try:
                threading.Thread(target=self._serve, name='calls-%d' % self._threads, daemon=True).start()
            except RuntimeError as error:  # there may be no more: those that are there go on
                log('rookery_runtime: %s' % error)
                with self._changed:
                    self._threads -= 1
                    self._idle -= 1

    def _follow(self):
        with self._changed:
            self._idle += 1
        self._wait_for_baton()

    def _wait_for_baton(self):
        while True:
            self._bell.acquire()
            if self._take() if self._score > _SCORE_LIMIT else self._watch():
                break
        with self._changed:
            self._idle -= 1

    def _watch(self):
        """True: has taken the baton from beside a call that takes long. False: nothing has run for some time, or another thread watches."""
        with self._changed:
            if self._is_watched:
                return False
            self._is_watched = True
        number = None
        quiet = 0
        while True:
            is_rung = self._bell.acquire(True, _WATCH_SECONDS)
            if is_rung:
                is_due = self._score > _SCORE_LIMIT
            else:
                is_due = number == self._number
                number = self._number
            if is_due and self._take():
                if not is_rung:
                    self._score = min(_MAX_SCORE, self._score + _WATCHED_SCORE)
                self._is_watched = False
                return True
            quiet = quiet + 1 if is_due and not is_rung else 0
            if quiet >= _QUIET_LOOKS:
                self._is_watched = False
                # Who puts the baton down from now on rings.
                if not self._baton:
                    return False
                self._is_watched = True
                quiet = 0
