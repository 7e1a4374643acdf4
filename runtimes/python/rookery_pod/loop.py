"""The one thread of the manager: waits for descriptors, for children and for moments."""

import heapq
import itertools
import select
import time

from rookery_zygote import waiting


class Loop:
    def __init__(self, on_child):
        """`on_child` is called after every signal; a child may have ended."""
        self._poll = select.poll()
        self._handlers = {}
        self._timers = []
        self._numbers = itertools.count()
        self._wake = waiting.Wakeup()
        self._on_child = on_child
        self.want(self._wake.fileno(), select.POLLIN, self._on_wake)

    def want(self, descriptor, events, handler):
        """Calls `handler(events)` whenever one of `events` is there; 0: no more. It must bear to be called without need."""
        _handler, known = self._handlers.get(descriptor, (None, 0))
        if events == 0:
            # One that is only listed would report the end of its other side over and over.
            if known:
                self._poll.unregister(descriptor)
                del self._handlers[descriptor]
            return
        if events != known:
            self._poll.register(descriptor, events)
        self._handlers[descriptor] = (handler, events)

    def after(self, seconds, action):
        """Calls it once. What is returned is for `cancel`."""
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
        """In a child: its copies are nobody's."""
        self._wake.detach()

    def _on_wake(self, _event):
        self._wake.clear()
        self._on_child()
