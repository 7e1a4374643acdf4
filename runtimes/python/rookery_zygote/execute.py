"""Runs one command inside a running sandbox. A child of init does all of it and answers itself."""

import os
import select
import signal
import time

from . import access, command, frames, process, syscalls, user_process, waiting
from .failure import Refusal

_CHUNK = 65536
_READ_REQUEST_SECONDS = 10
#: Number of reads for the output that an ended command has left in each pipe.
_MOST_DRAIN_READS = 64


def serve(connection, sandbox):
    """Reads the request, runs the command and answers. Ends the process."""
    code = 1
    try:
        process.close_all_but([0, 1, 2, connection.fileno()])
        connection.settimeout(_READ_REQUEST_SECONDS)
        request = frames.read_message(connection)
        if request is not None:
            _serve(connection, _Command(connection, sandbox, request))
        code = 0
    # Every failure is answered: otherwise the caller would take the closed connection for the end of the
    # sandbox.
    except Refusal as refusal:
        access.refuse(connection, refusal.code, refusal.message)
    except MemoryError:
        sentence = "the memory of the sandbox is not enough for the command and its output"
        access.refuse(connection, "resource_exhausted", sentence)
    except (frames.FrameError, KeyError, TypeError) as error:
        access.refuse(connection, "internal", "the request for a command is none: %s" % error)
    except OSError:
        # The caller has disconnected.
        pass
    finally:
        os._exit(code)


def _serve(connection, running):
    answer = running.run()
    if answer is not None:
        connection.settimeout(_READ_REQUEST_SECONDS)
        header, stdout, stderr = answer
        frames.write_message(connection, header)
        frames.write(connection, stdout, stderr)


class _Output:
    def __init__(self, descriptor, largest):
        self.descriptor = descriptor
        self._largest = largest
        self._parts = []
        self._size = 0
        self.truncated = False

    def read(self):
        """Reads once. Returns False at the end of the output, or when no data is available."""
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
        """Returns `(header, stdout, stderr)`, or None when the caller has disconnected."""
        pipes = command.open_pipes()
        (stdin_reader, self._stdin_writer), (stdout_reader, stdout_writer), (stderr_reader, stderr_writer) = pipes
        try:
            wake = waiting.Wakeup()
            self._child = os.fork()
        except OSError as error:
            raise Refusal("unavailable", "no process can be started inside: %s" % error.strerror)
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
            # The command must not outlive this process, which would end it.
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            env = dict(self._sandbox.env)
            env.update(self._request["env"])
            command.run(self._request["argv"], env, self._sandbox.working_dir, self._request["workingDir"])
        except BaseException as error:
            command.fail_to_run(getattr(error, "strerror", None) or str(error))
        finally:
            os._exit(127)

    def _wait(self, wake):
        """Returns the return code, −1 after the timeout, or None when the caller has disconnected."""
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
        """Reads what the command has written. Children of the command may still hold the pipes open."""
        for output in (self._stdout, self._stderr):
            for _ in range(_MOST_DRAIN_READS):
                if not output.read():
                    break
