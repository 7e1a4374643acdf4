"""One command inside a running sandbox. A child of init does all of it and answers itself."""

import os
import select
import time

from . import command, frames, process, user_process, waiting

_CHUNK = 65536
_READ_REQUEST_SECONDS = 10
#: How much output that a dead command left in its pipes is still read.
_MOST_DRAIN_READS = 64


def serve(connection, sandbox):
    """Reads the request, runs it, answers; the process ends here."""
    code = 1
    try:
        process.close_all_but([0, 1, 2, connection.fileno()])
        connection.settimeout(_READ_REQUEST_SECONDS)
        request = frames.read_message(connection)
        if request is not None:
            answer = _Command(connection, sandbox, request).run()
            if answer is not None:
                connection.settimeout(_READ_REQUEST_SECONDS)
                header, stdout, stderr = answer
                frames.write_message(connection, header)
                frames.write(connection, stdout, stderr)
        code = 0
    except (OSError, frames.FrameError):
        # The caller went away: there is nobody to tell.
        pass
    finally:
        os._exit(code)


class _Output:
    def __init__(self, descriptor, largest):
        self.descriptor = descriptor
        self._largest = largest
        self._parts = []
        self._size = 0
        self.truncated = False

    def read(self):
        """Takes what is there. False at the end of the output or when nothing is there."""
        try:
            data = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            return False
        room = self._largest - self._size
        if len(data) > room:
            self.truncated = True
            data = data[:room]
        if data:
            self._parts.append(data)
            self._size += len(data)
        return True

    def bytes(self):
        return b"".join(self._parts)


class _Command:
    def __init__(self, connection, sandbox, request):
        self._connection = connection
        self._sandbox = sandbox
        self._request = request
        self._stdin = memoryview(request["stdin"].encode("utf-8", "surrogatepass"))

    def run(self):
        """`(header, stdout, stderr)`, or None when the caller went away."""
        wake = waiting.Wakeup()
        stdin_reader, self._stdin_writer = os.pipe()
        stdout_reader, stdout_writer = os.pipe()
        stderr_reader, stderr_writer = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            self._become(stdin_reader, stdout_writer, stderr_writer)
        for descriptor in (stdin_reader, stdout_writer, stderr_writer):
            os.close(descriptor)
        for descriptor in (self._stdin_writer, stdout_reader, stderr_reader):
            os.set_blocking(descriptor, False)
        largest = self._request["maxOutputBytes"]
        self._stdout = _Output(stdout_reader, largest)
        self._stderr = _Output(stderr_reader, largest)
        status = self._wait(wake)
        if status is None:
            return None
        header = {
            "ok": True,
            "returncode": status,
            "truncated": self._stdout.truncated or self._stderr.truncated,
        }
        return header, self._stdout.bytes(), self._stderr.bytes()

    def _become(self, stdin, stdout, stderr):
        try:
            user_process.become_command(self._sandbox, (stdin, stdout, stderr))
            env = dict(self._sandbox.env)
            env.update(self._request["env"])
            command.run(self._request["argv"], env, self._sandbox.working_dir, self._request["workingDir"])
        finally:
            os._exit(126)

    def _wait(self, wake):
        """The return code; −1 when the time was over; None when the caller went away."""
        deadline = time.monotonic() + self._request["timeoutMs"] / 1000.0
        poll = select.poll()
        poll.register(wake.fileno(), select.POLLIN)
        poll.register(self._connection.fileno(), select.POLLIN)
        outputs = {}
        for output in (self._stdout, self._stderr):
            outputs[output.descriptor] = output
            poll.register(output.descriptor, select.POLLIN)
        if self._stdin:
            poll.register(self._stdin_writer, select.POLLOUT)
        else:
            os.close(self._stdin_writer)
        while True:
            if waiting.is_over(deadline):
                self._kill()
                return -1
            for descriptor, _event in poll.poll(waiting.left_ms(deadline)):
                if descriptor == wake.fileno():
                    wake.clear()
                    status = self._reap()
                    if status is not None:
                        return status
                elif descriptor == self._connection.fileno():
                    self._kill()
                    return None
                elif descriptor == self._stdin_writer:
                    self._write_stdin(poll)
                elif descriptor in outputs and not outputs[descriptor].read():
                    poll.unregister(descriptor)
                    del outputs[descriptor]

    def _write_stdin(self, poll):
        try:
            self._stdin = self._stdin[os.write(self._stdin_writer, self._stdin[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            self._stdin = self._stdin[:0]
        if not self._stdin:
            poll.unregister(self._stdin_writer)
            os.close(self._stdin_writer)

    def _reap(self):
        pid, status = os.waitpid(self._child, os.WNOHANG)
        if pid == 0:
            return None
        self._drain()
        return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def _kill(self):
        process.kill(-self._child)
        process.kill(self._child)
        os.waitpid(self._child, 0)
        self._drain()

    def _drain(self):
        """What the command has written; its own children may still hold the pipes, so there need be no end."""
        for output in (self._stdout, self._stderr):
            for _ in range(_MOST_DRAIN_READS):
                if not output.read():
                    break
