"""The manager's only thread: waits for descriptors, children and timers."""

import heapq
import itertools
import select
import time

from rookery_zygote import waiting


class Loop:
    def __init__(self, on_child):
        """`on_child` is called after every signal, when a child may have ended."""
        self._poll = select.poll()
        self._handlers = {}
        self._timers = []
        self._numbers = itertools.count()
        self._wake = waiting.Wakeup()
        self._on_child = on_child
        self.want(self._wake.fileno(), select.POLLIN, self._on_wake)

    def want(self, descriptor, events, handler):
        """
        Calls `handler(events)` whenever one of `events` is ready; 0 stops that.

        The handler may be called without need.
        """
        _handler, known = self._handlers.get(descriptor, (None, 0))
        if events == 0:
            # A descriptor that is registered without events would report a hang-up again and again.
            if known:
                self._poll.unregister(descriptor)
                del self._handlers[descriptor]
            return
        if events != known:
            self._poll.register(descriptor, events)
        self._handlers[descriptor] = (handler, events)

    def after(self, seconds, action):
        """Calls `action` once after that time. Returns a timer for `cancel`."""
        timer = [time.monotonic() + seconds, next(self._numbers), action]
        heapq.heappush(self._timers, timer)
        return timer

    @staticmethod
    def cancel(timer):
        if timer is not None:
            timer[2] = None

    def run_once(self):
        while self._timers and self._timers[0][2] is None:
            heapq.heappop(self._timers)
        moment = self._timers[0][0] if self._timers else None
        for descriptor, event in self._poll.poll(waiting.left_ms(moment)):
            handler, _events = self._handlers.get(descriptor, (None, 0))
            if handler is not None:
                handler(event)
        while self._timers and waiting.is_over(self._timers[0][0]):
            action = heapq.heappop(self._timers)[2]
            if action is not None:
                action()

    def leave(self):
        """Detaches a child's copies of the descriptors."""
        self._wake.detach()

    def _on_wake(self, _event):
        self._wake.clear()
        self._on_child()
