"""One execution of a cell, as a queue between its kernel and the client that asked for it."""
import collections
import threading
import time

from rookery_interpreter import lines

#: How long text waits for more of the same stream, so that two prints in a row become one message.
MERGE_SECONDS = 0.05
#: Text that is sent without waiting for more.
MERGE_CHARS = 64 * 1024
#: Queued characters from which the kernel has to wait for the client.
MOST_QUEUED = 4 * 1024 * 1024


class _Text(object):
    """Text of one stream that is not sent yet."""

    def __init__(self, stream, text):
        self.stream = stream
        self.parts = [text]
        self.size = len(text)
        self.timestamp = lines.now()
        self.due = time.monotonic() + MERGE_SECONDS

    def line(self):
        return lines.line_of({'type': self.stream, 'text': ''.join(self.parts), 'timestamp': self.timestamp})


class Execution(object):
    """
    Output of one cell. The kernel's thread puts output and ends it; the thread of the request takes lines.

    A client that reads slowly blocks `put_…`, and so the cell. `abandon` drops all output from then on.
    """

    def __init__(self):
        self._changed = threading.Condition()
        self._queue = collections.deque()
        self._size = 0
        self._ended = False
        self._abandoned = False

    def put_text(self, stream, text):
        """Adds output of `stdout` or `stderr`."""
        with self._changed:
            if not text or not self._has_place():
                return
            last = self._queue[-1] if self._queue else None
            if isinstance(last, _Text) and last.stream == stream and last.size < MERGE_CHARS:
                last.parts.append(text)
                last.size += len(text)
            else:
                self._queue.append(_Text(stream, text))
            self._size += len(text)
            self._changed.notify_all()

    def put_line(self, line):
        """Adds one encoded line."""
        with self._changed:
            if self._has_place():
                self._queue.append(line)
                self._size += len(line)
                self._changed.notify_all()

    def _has_place(self):
        while self._size >= MOST_QUEUED and not self._abandoned and not self._ended:
            self._changed.wait()
        return not self._abandoned and not self._ended

    def end(self, last_line=None):
        """Ends the execution, with a last line if one is given. Later output is dropped."""
        with self._changed:
            if self._ended:
                return
            if last_line is not None and not self._abandoned:
                self._queue.append(last_line)
            self._ended = True
            self._changed.notify_all()

    def abandon(self):
        """Drops queued and later output: the client is gone."""
        with self._changed:
            self._abandoned = True
            self._queue.clear()
            self._size = 0
            self._changed.notify_all()

    def wait_end(self, seconds):
        """Waits for the end, `seconds` at most, and returns True if it came."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended, seconds)

    def take(self, seconds):
        """Waits for output, `seconds` at most. Returns the encoded lines, and True if they are the last ones."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._ended, seconds)
            while self._should_merge():
                self._changed.wait(max(0.001, self._queue[0].due - time.monotonic()))
            taken = [entry.line() if isinstance(entry, _Text) else entry for entry in self._queue]
            self._queue.clear()
            self._size = 0
            self._changed.notify_all()
            return b''.join(taken), self._ended

    def _should_merge(self):
        """Returns True if the queue holds only one text, which may still grow."""
        if self._ended or self._abandoned or len(self._queue) != 1 or not isinstance(self._queue[0], _Text):
            return False
        return self._queue[0].size < MERGE_CHARS and time.monotonic() < self._queue[0].due
