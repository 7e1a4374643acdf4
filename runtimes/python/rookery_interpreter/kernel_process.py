"""The process of a context, as the server sees it: start, cells, output, interrupt and end."""
import codecs
import json
import os
import select
import signal
import socket
import subprocess
import threading

from rookery_interpreter import lines
from rookery_interpreter.execution import Execution

#: Seconds after an interrupt until the whole process group gets it, and until the process is killed.
GROUP_INTERRUPT_SECONDS = 1.5
KILL_SECONDS = 5
#: How often the end of a process is noticed whose children still hold its channel, in a cell and between, if
#: the system cannot report it (before Python 3.9 or Linux 5.3).
WATCH_MS = 500
IDLE_WATCH_MS = 5000
READ_BYTES = 64 * 1024
#: Most output that is read from a pipe before a message that was sent after it. A pipe holds at most 1 MiB.
MOST_DRAINED = 1024 * 1024


class KernelProcess(object):
    """
    A running kernel. `command` gets the number of its channel's descriptor as the last argument.

    One thread of the server reads its output all the time, so that programs that a cell left in the
    background never block. Output without a current execution is dropped.
    """

    def __init__(self, command, cwd):
        """Starts the process in `cwd`. Raises OSError if that fails."""
        ours, its = socket.socketpair()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        try:
            self._process = subprocess.Popen(
                list(command) + [str(its.fileno())], cwd=cwd, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL,
                stdout=out_write, stderr=err_write, start_new_session=True)
        except OSError:
            ours.close()
            os.close(out_read)
            os.close(err_read)
            raise
        finally:
            its.close()
            os.close(out_write)
            os.close(err_write)
        self._channel = ours
        self._pipes = {out_read: 'stdout', err_read: 'stderr'}
        self._decoders = {}
        for descriptor in self._pipes:
            os.set_blocking(descriptor, False)
            self._decoders[descriptor] = codecs.getincrementaldecoder('utf-8')('replace')
        self._partial = bytearray()
        self._lock = threading.Lock()
        self._execution = None
        self._end_line = None
        self._count = 0
        self._is_over = False
        thread = threading.Thread(target=self._pump, name='kernel-%d' % self._process.pid)
        thread.daemon = True
        thread.start()

    @property
    def is_over(self):
        """True if the process can run no more cells."""
        with self._lock:
            return self._is_over or self._has_exited()

    def execute(self, code, env):
        """Starts a cell and returns its Execution. One at a time: the caller waits for each end."""
        execution = Execution()
        with self._lock:
            if self._is_over:
                execution.end(self._died_line())
                return execution
            self._count += 1
            execution.put_line(lines.line_of({'type': 'number_of_executions', 'execution_count': self._count}))
            self._execution = execution
        try:
            self._channel.sendall(lines.line_of({'code': code, 'env': env}))
        except OSError:
            self._finish(self._died_line())
        return execution

    def interrupt(self, execution):
        """
        Ends an execution whose client is gone: an interrupt first, and after 5 s the end of the process.

        Returns when the execution has ended.
        """
        execution.abandon()
        self._signal(execution, os.kill, signal.SIGINT)
        if execution.wait_end(GROUP_INTERRUPT_SECONDS):
            return
        self._signal(execution, os.killpg, signal.SIGINT)
        if not execution.wait_end(KILL_SECONDS - GROUP_INTERRUPT_SECONDS):
            self.kill(None)
            execution.wait_end(KILL_SECONDS)

    def _signal(self, execution, send, number):
        with self._lock:
            if self._execution is execution and not self._is_over:
                send(self._process.pid, number)

    def kill(self, failure):
        """Kills the process group. A current execution ends with `failure` (a message), or with a general one."""
        with self._lock:
            if self._is_over:
                return
            self._end_line = None if failure is None else lines.line_of(failure)
            self._is_over = True
            os.killpg(self._process.pid, signal.SIGKILL)

    def _died_line(self):
        if self._end_line is not None:
            return self._end_line
        code = self._process.poll()
        how = 'ended' if code is None else 'ended with code %d' % code if code >= 0 else 'was killed by signal %d' % -code
        value = 'The process of this context %s. The next cell starts a new one, without the names of this one.' % how
        return lines.line_of(lines.failure('KernelDied', value))

    def _pump(self):
        poll = select.poll()
        end = self._open_end()
        for descriptor in list(self._pipes) + [self._channel.fileno()] + end:
            poll.register(descriptor, select.POLLIN)
        try:
            while True:
                ready = [descriptor for descriptor, _ in poll.poll(IDLE_WATCH_MS if self._execution is None else WATCH_MS)]
                for descriptor in ready:
                    if descriptor in self._pipes and self._read_pipe(descriptor) == 0:
                        poll.unregister(descriptor)
                if self._channel.fileno() in ready and not self._read_channel():
                    break
                if self._channel.fileno() not in ready and self._has_exited():
                    break
        finally:
            for descriptor in end:
                os.close(descriptor)
            self._close()

    def _open_end(self):
        """Returns a descriptor in a list that is readable when the process has ended, or an empty list."""
        try:
            return [os.pidfd_open(self._process.pid)]  # novm
        except (AttributeError, OSError):
            return []

    def _has_exited(self):
        """Returns True if the process has ended. It is not reaped, so that its group's number stays taken."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _read_pipe(self, descriptor):
        """Reads a part of what a pipe holds. Returns the number of bytes: 0 at its end, -1 if it is empty."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return -1
        execution = self._execution
        text = self._decoders[descriptor].decode(data)
        if execution is not None:
            execution.put_text(self._pipes[descriptor], text)
        return len(data)

    def _drain_pipes(self):
        """Reads what was written before a message, so that the order is kept."""
        for descriptor in self._pipes:
            drained = 0
            while drained < MOST_DRAINED:
                count = self._read_pipe(descriptor)
                if count <= 0:
                    break
                drained += count

    def _read_channel(self):
        """Reads messages of the kernel. Returns False at the end of its channel."""
        try:
            data = self._channel.recv(READ_BYTES)
        except OSError:
            return False
        start = len(self._partial)
        self._partial += data
        if b'\n' in data:
            end = self._partial.rindex(b'\n', start) + 1
            messages = bytes(self._partial[:end]).splitlines(True)
            del self._partial[:end]
            for message in messages:
                self._deliver(message)
        return len(data) > 0

    def _deliver(self, line):
        try:
            kind = json.loads(line.decode('ascii')).get('type')
        except (ValueError, AttributeError):
            return  # user code wrote to the channel
        self._drain_pipes()
        if kind == 'end':
            self._finish(None)
        elif self._execution is not None:
            self._execution.put_line(line)

    def _finish(self, last_line):
        with self._lock:
            execution, self._execution = self._execution, None
        if execution is None:
            return
        for descriptor, stream in self._pipes.items():
            execution.put_text(stream, self._decoders[descriptor].decode(b'', True))
            self._decoders[descriptor].reset()
        execution.end(last_line)

    def _close(self):
        """Ends the process group and reports the end to the execution."""
        with self._lock:
            self._is_over = True
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._drain_pipes()
        self._finish(self._died_line())
        self._channel.close()
        for descriptor in self._pipes:
            os.close(descriptor)

