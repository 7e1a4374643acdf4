"""Runs a command whose input and outputs are streams over one connection.

After the request, frames go both ways. The first byte is the kind of a frame. Each stream has a window: the
number of bytes that may be sent before the other side grants credit for what it has passed on. So both sides
always read the connection, and a resize or a kill takes effect while the streams are blocked.
"""

import errno
import fcntl
import os
import select
import signal
import struct
import termios
import time

from . import command, frames, process, syscalls, waiting
from .failure import Refusal

#: Kinds of frames. STDIN, STDOUT and STDERR also name the stream in a CREDIT.
STDIN, STDOUT, STDERR, STDIN_END, RESIZE, KILL, CREDIT, EXIT = range(8)
#: Number of bytes of a stream that may be in transit.
WINDOW = 262144
_CREDIT_STEP = WINDOW // 4
_CHUNK = 65536
_LARGEST_FRAME = WINDOW + 16
#: Limit for reading the remaining output of an ended command. Other processes may hold its outputs and
#: continue to write.
_MOST_LEFT = 1048576
#: Time that the caller has to read the exit code.
_HEARD_SECONDS = 10
#: Time that a terminal may take to pass on the last output.
_TERMINAL_SECONDS = 0.1


def serve(connection, request):
    """
    Runs `argv` with `env` in `workingDir`, with a terminal or with pipes, until the command ends.

    If `askedDir` is set, the command runs there or fails. The command is killed when the caller disconnects.
    Raises Refusal only before the first answer.
    """
    running = _start(request)
    connection.setblocking(False)
    _Conversation(connection, running).run()


class _Running:
    """The command, and this process's ends of its input and outputs."""

    def __init__(self, pid, stdin, outputs, has_terminal):
        self.pid = pid
        self.stdin = stdin
        #: The open ones as `{STDOUT: descriptor, STDERR: descriptor}`.
        self.outputs = outputs
        self.has_terminal = has_terminal

    def resize(self, columns, rows):
        if self.has_terminal and self.stdin is not None:
            _set_size(self.stdin, columns, rows)

    def kill(self):
        """Kills all processes of the session, because a shell gives each of its jobs a separate group."""
        process.kill(-self.pid)
        # The command may not have its session yet.
        process.kill(self.pid)
        for pid in _session(self.pid):
            process.kill(pid)


def _start(request):
    terminal = request["terminal"]
    env = dict(request["env"])
    # Opened before the fork, so that a failure starts no child.
    if terminal is None:
        (stdin, stdin_writer), (stdout_reader, stdout), (stderr_reader, stderr) = command.open_pipes()
        ours = (stdin_writer, {STDOUT: stdout_reader, STDERR: stderr_reader})
        theirs = (stdin, stdout, stderr)
    else:
        master, slave = _open_terminal()
        _set_size(master, terminal["columns"], terminal["rows"])
        env.setdefault("TERM", "xterm-256color")
        ours = (os.dup(master), {STDOUT: master})
        theirs = (slave, slave, slave)
    try:
        pid = os.fork()
    except OSError as error:
        raise Refusal("unavailable", "no process can be started inside: %s" % error.strerror)
    if pid == 0:
        try:
            # The command must not outlive this process, which would end it.
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            command.detach(theirs)
            if terminal is not None:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            command.run(request["argv"], env, request["workingDir"], request.get("askedDir", ""))
        except BaseException as error:
            command.fail_to_run(getattr(error, "strerror", None) or str(error))
        finally:
            os._exit(127)
    for descriptor in set(theirs):
        os.close(descriptor)
    return _Running(pid, ours[0], ours[1], terminal is not None)


def _open_terminal():
    try:
        return os.openpty()
    except OSError as error:
        raise Refusal("failed_precondition", "a sandbox has no terminals on this machine: %s" % error.strerror)


def _set_size(descriptor, columns, rows):
    try:
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    except OSError:
        pass


def _session(leader):
    found = []
    for pid in process.parents():
        try:
            if os.getsid(pid) == leader:
                found.append(pid)
        except OSError:
            pass
    return found


class _Conversation:
    def __init__(self, connection, running):
        self._connection = connection
        self._running = running
        self._poll = select.poll()
        self._wanted = {}
        self._received = bytearray()
        self._unsent = bytearray()
        #: Input that the command has not read yet, and the number of bytes it has read without a CREDIT for
        #: them.
        self._input = bytearray()
        self._taken = 0
        self._input_ends = False
        self._credit = {STDOUT: WINDOW, STDERR: WINDOW}
        self._status = None
        self._ended_at = None
        #: Outputs of an ended command that may still contain data, with the number of bytes to read at most.
        self._left = {}
        for descriptor in [running.stdin] + list(running.outputs.values()):
            os.set_blocking(descriptor, False)

    def run(self):
        wake = waiting.Wakeup()
        try:
            self._serve(wake)
        finally:
            wake.close()

    def _serve(self, wake):
        self._poll.register(wake.fileno(), select.POLLIN)
        self._send_message(b'{"ok":true}')
        # The command may have ended already.
        self._reap()
        while not self._is_over():
            self._want_what_can_be_done()
            for descriptor, event in self._poll.poll(self._wait_ms()):
                if descriptor == wake.fileno():
                    wake.clear()
                    self._reap()
                elif descriptor == self._connection.fileno():
                    if not self._talk(event):
                        self._running.kill()
                        return
                elif descriptor == self._running.stdin:
                    self._feed()
                else:
                    self._read_output(descriptor)
            if self._status is not None:
                self._read_rest()
        self._tell_end()

    def _is_over(self):
        return self._status is not None and not self._left

    def _wait_ms(self):
        return None if self._status is None or not self._running.has_terminal else _TERMINAL_SECONDS * 1000

    def _want_what_can_be_done(self):
        running = self._running
        self._want(self._connection.fileno(), select.POLLIN | (select.POLLOUT if self._unsent else 0))
        if running.stdin is not None:
            self._want(running.stdin, select.POLLOUT if self._input else 0)
        for stream, descriptor in running.outputs.items():
            can_send = self._credit[stream] > 0 and len(self._unsent) < WINDOW
            self._want(descriptor, select.POLLIN if can_send else 0)

    def _want(self, descriptor, event):
        """
        Sets the events to wait for.

        A descriptor with no events is unregistered, since poll would report its hang-up again and again.
        """
        if self._wanted.get(descriptor, 0) == event:
            return
        if event == 0:
            self._poll.unregister(descriptor)
        else:
            self._poll.register(descriptor, event)
        self._wanted[descriptor] = event

    # The connection

    def _send(self, kind, payload):
        self._send_message(bytes([kind]) + payload)

    def _send_message(self, message):
        self._unsent += frames.packed(message)
        self._flush()

    def _flush(self):
        if not self._unsent:
            return
        try:
            del self._unsent[: self._connection.send(self._unsent)]
        except BlockingIOError:
            pass

    def _talk(self, event):
        """Reads and writes the connection. Returns False when the caller has disconnected."""
        try:
            if event & select.POLLOUT:
                self._flush()
            if event & ~select.POLLOUT:
                data = self._connection.recv(_CHUNK)
                if not data:
                    return False
                self._received += data
        except BlockingIOError:
            return True
        except OSError:
            return False
        while True:
            try:
                frame = frames.take(self._received, _LARGEST_FRAME)
            except frames.FrameError:
                return False
            if not frame:
                # An empty frame has no kind.
                return frame is None
            self._obey(frame[0], frame[1:])

    def _obey(self, kind, payload):
        if kind == STDIN:
            if len(self._input) + len(payload) > WINDOW:
                raise frames.FrameError("more input than there is a window for")
            self._input += payload
            self._feed()
        elif kind == STDIN_END:
            self._input_ends = not self._running.has_terminal
            self._feed()
        elif kind == RESIZE:
            self._running.resize(*struct.unpack(">HH", payload))
        elif kind == KILL:
            self._running.kill()
        elif kind == CREDIT:
            stream, count = struct.unpack(">BI", payload)
            self._credit[stream] += count

    # Input

    def _feed(self):
        if self._running.stdin is not None and self._input:
            try:
                self._take(os.write(self._running.stdin, self._input))
            except BlockingIOError:
                return
            except OSError:
                # The command has closed its input, which is no error of the caller.
                self._close_input()
        if self._running.stdin is None:
            self._take(len(self._input))
        elif self._input_ends and not self._input:
            self._close_input()

    def _take(self, count):
        del self._input[:count]
        self._taken += count
        if self._taken >= _CREDIT_STEP or (self._taken and self._running.stdin is None):
            self._send(CREDIT, struct.pack(">BI", STDIN, self._taken))
            self._taken = 0

    def _close_input(self):
        self._want(self._running.stdin, 0)
        os.close(self._running.stdin)
        self._running.stdin = None

    # Outputs

    def _read_output(self, descriptor):
        for stream, known in self._running.outputs.items():
            if known == descriptor:
                self._read(stream)
                return

    def _read(self, stream):
        """
        Reads an output once.

        Returns the number of bytes, or None at the end or when there is no data now.
        """
        descriptor = self._running.outputs[stream]
        try:
            data = os.read(descriptor, min(_CHUNK, self._credit[stream]))
        except BlockingIOError:
            return None
        except OSError as error:
            # A terminal reports its end as EIO.
            if error.errno != errno.EIO:
                raise
            data = b""
        if not data:
            self._want(descriptor, 0)
            os.close(descriptor)
            del self._running.outputs[stream]
            self._left.pop(stream, None)
            return None
        self._credit[stream] -= len(data)
        self._send(stream, data)
        return len(data)

    # The end

    def _reap(self):
        if self._status is not None:
            return
        pid, status = os.waitpid(self._running.pid, os.WNOHANG)
        if pid:
            self._status = status
            self._ended_at = time.monotonic()
            self._left = {stream: _MOST_LEFT for stream in self._running.outputs}

    def _read_rest(self):
        for stream in list(self._left):
            while stream in self._left and self._credit[stream] > 0 and len(self._unsent) < WINDOW:
                count = self._read(stream)
                if count is None:
                    if stream in self._left and self._is_empty():
                        del self._left[stream]
                    break
                self._left[stream] -= count
                if self._left[stream] <= 0:
                    del self._left[stream]

    def _is_empty(self):
        """
        Returns True if an output without data stays without data.

        That holds for a pipe at once. A terminal passes on the last output a moment later.
        """
        return not self._running.has_terminal or time.monotonic() - self._ended_at >= _TERMINAL_SECONDS

    def _tell_end(self):
        status = self._status
        code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._unsent += frames.packed(struct.pack(">Bi", EXIT, code))
        self._connection.settimeout(None)
        self._connection.sendall(self._unsent)
        # A CREDIT may be in transit. If the connection were closed, its sender would see an error and not the
        # exit code.
        self._connection.settimeout(_HEARD_SECONDS)
        while self._connection.recv(_CHUNK):
            pass
