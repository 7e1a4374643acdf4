"""The bounded, rotating log of one sandbox.

Each line is stored as `<13 digits of milliseconds> <line>`. When a file is full in the middle of a line, the next file begins with
`<milliseconds>+`: what follows continues the line.
"""

import os
import time


class LogFile:
    def __init__(self, directory, largest, files):
        #: A descriptor of the directory: the path is not in reach from inside.
        self._directory = directory
        self._largest = largest
        self._files = files
        self._line_open = False
        self._open()

    def write(self, data):
        """Stores output as it came. A full disk loses it: the sandbox goes on."""
        now = b"%013d " % int(time.time() * 1000)
        room = self._largest - self._size
        while len(data) > room:
            # The line that reaches over the border stays whole when it ends soon, else it is cut here.
            cut = data.find(b"\n", max(room, 0), max(room, 0) + 65536) + 1 or max(room, 0)
            self._append(data[:cut], now)
            data = data[cut:]
            self._rotate(now)
            room = self._largest - self._size
        if data:
            self._append(data, now)

    def _append(self, data, now):
        if not data:
            return
        ended = data.endswith(b"\n")
        body = data[:-1] if ended else data
        stored = b"".join(
            (
                b"" if self._line_open else now,
                body.replace(b"\n", b"\n" + now),
                b"\n" if ended else b"",
            )
        )
        self._line_open = not ended
        self._store(stored)

    def _store(self, stored):
        self._size += len(stored)
        if self._file is None:
            return
        view = memoryview(stored)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            pass

    def _rotate(self, now):
        if self._file is not None:
            os.close(self._file)
        for index in range(self._files - 1, 0, -1):
            older = "log.%d" % index
            newer = "log" if index == 1 else "log.%d" % (index - 1)
            try:
                os.rename(newer, older, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            except OSError:
                pass
        self._open()
        if self._line_open:
            self._store(now[:-1] + b"+")

    def _open(self):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._size = 0
        try:
            self._file = os.open("log", flags, 0o600, dir_fd=self._directory)
        except OSError:
            self._file = None
