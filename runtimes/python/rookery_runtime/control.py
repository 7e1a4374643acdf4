"""The control thread: accepts connections, cancels calls, answers pings, stops and detects lost clients."""
import _signal
import _thread
import collections
import errno
import heapq
import hmac
import itertools
import os
import platform
import select
import socket
import threading
from time import monotonic

from . import protocol
from .connection import Connection
from .execution import cancelled_frame
from .failures import log, log_exception
from .protocol import ProtocolError
from .reading import end_without_descriptors, read, read_rest
from .version import __version__

_RUNTIME = 'python%s' % platform.python_version()
_SDK = 'rookery-runtime/%s' % __version__

_HANDSHAKE_SECONDS = 10
_MAX_HANDSHAKES = 64
_ACCEPT_PAUSE_SECONDS = 1
_INTERRUPT_AGAIN_SECONDS = 1
#: Limit of a single epoll wait, which takes at most 24 days. A longer wait is split.
_LONGEST_WAIT_SECONDS = 24 * 60 * 60
#: Minimum for the grace of a STOP, so that with a grace of 0 the instance can still send its STOPPED.
_LEAST_GRACE_SECONDS = 0.1
_WATCH = select.EPOLLRDHUP
#: All signals except 32 and 33, which the C library reserves. Uses `_signal`, because `signal` converts every
#: number into an enum member.
_SIGNALS = set(range(1, _signal.NSIG)) - {32, 33}
#: Time that the main thread has to load the code before the control thread starts to serve. The two threads
#: would compete for the interpreter lock, which costs each of them more than a small load.
_LEAD_SECONDS = 0.02
#: Maximum number of reads, of 64 KiB each, when the instance stops.
_LAST_READS = 16


class Control(object):
    """
    Serves the control connections and watches all connections.

    The control thread waits in the kernel, without a timeout unless a timer is pending. All methods run in
    this thread, except `post`, `pause`, `resume`, `take_stop` and `end`, and the requests that the main
    thread serves in `lead` before this thread starts. This thread also reads the data connections while the
    main thread cannot: when the instance stops, and while an initializer is stuck.
    """

    def __init__(self, runtime, listener):
        self._runtime = runtime
        self._listener = listener
        self._secret = None
        self._epoll = select.epoll()
        self._inbox = collections.deque()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._timers = []
        self._timer_numbers = itertools.count()
        self._handshakes = 0
        self._data = []
        self._stoppers = []
        #: Acquired by the thread that ends the process, and never released.
        self._end_lock = threading.Lock()
        #: Guards the assignment of connections to the threads that read them.
        self._places = threading.Lock()
        #: Released to let the control thread start to serve.
        self._begun = threading.Lock()
        self._begun.acquire()
        #: Held by the thread that serves. The control thread never releases it.
        self._turns = threading.Lock()
        self._lead_end = 0.0
        #: True once the control thread has been created.
        self.is_started = False
        self._epoll.register(self._wake_in, select.EPOLLIN)
        self._epoll.register(listener.fileno(), select.EPOLLIN)

    def post(self, function, *arguments):
        """Runs a function in the control thread. May be called from any thread or signal handler."""
        self._inbox.append((function, arguments))
        try:
            os.write(self._wake_out, b'.')
        except BlockingIOError:  # the pipe is full, so the control thread wakes up anyway
            pass

    def descriptors(self):
        """Returns the descriptors that a forked child must close."""
        return [self._wake_in, self._wake_out, self._epoll.fileno(), self._listener.fileno()]

    def discard(self):
        """Closes everything except the listener. For an object whose thread was never started."""
        self._epoll.close()
        os.close(self._wake_in)
        os.close(self._wake_out)

    # The thread.

    def open(self, secret, lead_seconds=_LEAD_SECONDS):
        """Sets the secret and starts the time limit of `lead`. Called once, before anything is served."""
        # Only now: until then the process may still become another program, which expects a blocking
        # listener.
        self._listener.setblocking(False)
        self._lead_end = monotonic() + lead_seconds
        # Last, because the control thread waits until the secret is set.
        self._secret = secret.encode('utf-8')

    def start(self):
        """
        Creates the control thread. Called once, in a process that already has the rights of the user, since
        the kernel keeps those per thread.

        May be called before `open` if there is time, because a new thread competes with the one that loads
        the code. The thread sleeps until `begin` is called, but at most `lead_seconds` after `open`.
        """
        self.is_started = True
        # `_thread` does not wait until the thread runs. It also hides the thread from user code that counts
        # or joins the threads of `threading`.
        _thread.start_new_thread(self.run, ())

    def run(self):
        # The main thread handles all signals.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _SIGNALS)
        wait = _LEAD_SECONDS
        while wait > 0 and not self._begun.acquire(True, wait):
            wait = _LEAD_SECONDS if self._secret is None else self._lead_end - monotonic()
        self._turns.acquire()
        while True:
            self.serve(max(0, min(self._timers[0][0] - monotonic(), _LONGEST_WAIT_SECONDS)) if self._timers else -1)

    def lead(self):
        """
        Serves in the main thread until a data connection has been greeted or the time limit is over.

        Called once, after `start`. Returns False if the control thread already serves.
        """
        if not self._turns.acquire(False):
            return False
        # A signal handler of the user's code must not interrupt the following lines.
        mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _SIGNALS)
        try:
            while not self._data and not self._runtime.stopping:
                left = self._lead_end - monotonic()
                if left <= 0:
                    break
                self.serve(left)
        finally:
            self._turns.release()
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
        return True

    def begin(self):
        """Lets the control thread start to serve, if it does not serve yet."""
        self._begun.release()

    def serve(self, seconds):
        """Waits at most `seconds` (-1: no limit) and serves ready connections. Needs the lock `_turns`."""
        try:
            ready = self._epoll.poll(seconds)
        except (OSError, ValueError) as error:
            end_without_descriptors(error)
        try:
            self._turn(ready)
        except Exception as error:  # a fault of the runtime must not end the instance
            log_exception('rookery_runtime: a fault in the control thread', error)

    def _turn(self, ready):
        for fd, events in ready:
            connection = self._runtime.connections.get(fd)
            if connection is not None:
                self._serve(connection, events)
            elif fd == self._wake_in:
                os.read(fd, 4096)
            elif fd == self._listener.fileno():
                self._accept()
        while self._inbox:
            function, arguments = self._inbox.popleft()
            function(*arguments)
        while self._timers and self._timers[0][0] <= monotonic():
            _, _, function, arguments = heapq.heappop(self._timers)
            function(*arguments)

    def after(self, seconds, function, *arguments):
        self.at(monotonic() + seconds, function, *arguments)

    def at(self, time, function, *arguments):
        """Calls `function` at a time of the monotonic clock, in seconds."""
        heapq.heappush(self._timers, (time, next(self._timer_numbers), function, arguments))

    def forget(self, function):
        """Cancels all timers of `function`, so that they do not wake an idle instance."""
        self._timers = [timer for timer in self._timers if timer[2] != function]
        heapq.heapify(self._timers)

    # Connections.

    def _accept(self):
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            # The user's code has used up all descriptors. Pause before the next accept instead of trying in a
            # loop.
            self._epoll.unregister(self._listener.fileno())
            self.after(_ACCEPT_PAUSE_SECONDS, self._epoll.register, self._listener.fileno(), select.EPOLLIN)
            return
        self.greet(sock)

    def greet(self, sock):
        """Waits for the HELLO of an accepted connection. Closes the socket if too many connections wait."""
        if self._handshakes >= _MAX_HANDSHAKES:
            sock.close()
            return
        connection = Connection(sock, self._on_hello)
        self._handshakes += 1
        self._runtime.connections[connection.fd] = connection
        self._epoll.register(connection.fd, select.EPOLLIN | _WATCH)
        self.after(_HANDSHAKE_SECONDS, self._end_handshake, connection)

    def _end_handshake(self, connection):
        if connection.role is None and not connection.ended:
            self._end(connection)

    def _serve(self, connection, events):
        alive = True
        if events & select.EPOLLIN:
            alive = read(connection)
            if self._runtime.queue:
                self._runtime.reader.wake()
        # If the end arrives together with data on a data connection, no client waits for the answer to that
        # data.
        gone = events & (select.EPOLLHUP | select.EPOLLERR) or (events & _WATCH and connection.role != 'control')
        if not alive or gone:
            self._end(connection)

    def _end(self, connection):
        if connection.ended:
            return
        connection.shut()  # first, so that no thread stays blocked in it
        connection.drop()
        if connection.role is None:
            self._handshakes -= 1
        with self._places:
            self._epoll.unregister(connection.fd)
        del self._runtime.connections[connection.fd]
        for call in list(connection.running.values()):
            self._cancel(call, 'caller')
        self._runtime.reader.retire(connection)
        if connection.role == 'data':
            self._data.remove(connection)
            if self._runtime.durable is not None:
                self._runtime.durable.disconnected()

    def _on_hello(self, connection, kind, call_id, data, start, end):
        problem = None
        if kind != protocol.HELLO or call_id != 0:
            problem = 'expected HELLO as the first frame, got a frame of type %d' % kind
        else:
            try:
                hello = protocol.read_json(data[start:end], 'HELLO')
            except ProtocolError as error:
                problem = str(error)
        if problem is None:
            secret, client, role = hello.get('secret'), hello.get('client'), hello.get('role')
            if not isinstance(secret, str) or not hmac.compare_digest(
                    secret.encode('utf-8', 'surrogatepass'), self._secret):
                problem = 'wrong secret'
            elif hello.get('version') != protocol.VERSION:
                problem = 'this runtime speaks protocol version %d, not %r' % (protocol.VERSION, hello.get('version'))
            elif role not in ('data', 'control') or not isinstance(client, str) or not client:
                problem = 'HELLO needs a client, a text, and a role, data or control'
        if problem is not None:
            connection.send(protocol.error_frame(0, protocol.CODE_PROTOCOL, problem))
            raise ProtocolError(problem)
        self._handshakes -= 1
        if not self._handshakes:
            self.forget(self._end_handshake)
        connection.role = role
        connection.client = client
        connection.takes_spans = bool(hello.get('spans'))
        answer = {'version': protocol.VERSION, 'runtime': _RUNTIME, 'sdk': _SDK, 'state': self._runtime.state,
                  'stopsOverData': True, 'durable': 1}
        if self._runtime.durable is not None:
            answer['stateVersion'] = self._runtime.durable.version
            answer['keepAwakeSeconds'] = self._runtime.durable.kept_awake_seconds()
        if self._runtime.state == 'failed':
            answer['error'] = self._runtime.refusal
        connection.send(protocol.json_frame(protocol.HELLO_OK, 0, answer))
        if role == 'control':
            connection.on_frame = self._on_frame
        else:
            connection.on_frame = self._runtime.on_frame
            self._data.append(connection)
            self._place(connection)

    def data_connection(self):
        """Returns the newest data connection, or None."""
        return self._data[-1] if self._data else None

    # Assignment of readers.

    def assign(self):
        """
        Decides for every data connection which thread reads it.

        Called when a condition of that decision changes.
        """
        for connection in self._data:
            self._place(connection)

    def pause(self, connection):
        """Stops reading a connection with too many waiting calls. Called from the thread that reads it."""
        connection.paused = True
        self._place(connection)

    def resume(self, connection):
        connection.paused = False
        if not connection.ended:
            self._place(connection)

    def _place(self, connection):
        runtime = self._runtime
        with self._places:
            if connection.ended:
                return
            here = runtime.stopping or runtime.stuck
            by_main = not here and not connection.paused
            by_control = here and not connection.paused
            self._epoll.modify(connection.fd, _WATCH | (select.EPOLLIN if by_control else 0))
            runtime.reader.place(connection, by_main)

    # Frames of control connections.

    def _on_frame(self, connection, kind, call_id, data, start, end):
        if kind == protocol.CANCEL:
            reason = protocol.read_json(data[start:end], 'CANCEL').get('reason')
            if reason not in ('timeout', 'caller', 'interrupt'):
                raise ProtocolError('CANCEL needs a reason, timeout, caller or interrupt')
            self._on_cancel(connection.client, call_id, reason)
        elif kind == protocol.CREDIT:
            count = protocol.read_credit(data[start:end])
            for call in self._find(connection.client, call_id):
                stream = call.stream()
                if stream is not None:
                    stream.grant(count)
        elif kind == protocol.PING:
            counts = {
                'running': sum(len(other.running) for other in self._data),
                'queued': sum(len(other.queued) for other in self._data),
            }
            connection.send(protocol.json_frame(protocol.PONG, 0, counts))
        elif kind == protocol.SAVED:
            if self._runtime.durable is not None:
                self._runtime.durable.saved()
        elif kind == protocol.ALARM_LIST:
            if self._runtime.durable is not None:
                self._runtime.durable.listed(protocol.read_json(data[start:end], 'ALARM_LIST'))
        elif kind == protocol.STOP:
            grace_seconds = protocol.read_stop(data[start:end])
            self._stoppers.append(connection)
            self.stop(grace_seconds)
        else:
            raise ProtocolError('a frame of type %d has no place on a control connection' % kind)

    def _find(self, client, call_id):
        """Yields the open call with that id. There is at most one, since a client has one data connection."""
        for connection in list(self._data):
            if connection.client == client:
                call = connection.queued.get(call_id) or connection.running.get(call_id)
                if call is not None:
                    yield call

    def _on_cancel(self, client, call_id, reason):
        for connection in list(self._data):
            if connection.client != client:
                continue
            if call_id not in connection.queued and call_id not in connection.running and not connection.paused:
                # The CALL may wait in the kernel while a handler runs. Read it, so that it is answered now.
                read(connection)
                self._runtime.reader.wake()
            call = connection.queued.pop(call_id, None)
            if call is not None:
                call.reason = reason
                connection.send(cancelled_frame(call))
                continue
            call = connection.running.get(call_id)
            if call is None:
                connection.cancel_early(call_id, reason)
            else:
                self._cancel(call, reason)

    def _cancel(self, call, reason):
        """
        Interrupts a running call.

        The call's code may catch the exception, so `_interrupt` raises it again each second until the call
        has ended.
        """
        first = call.reason is None
        call.reason = reason
        if first:
            self._interrupt(call, False)
        else:
            self._runtime.executor.interrupt(call, False)
        call.wake_stream()

    def _interrupt(self, call, again):
        if call.connection.running.get(call.id) is call:
            self._runtime.executor.interrupt(call, again)
            self.after(_INTERRUPT_AGAIN_SECONDS, self._interrupt, call, True)

    def cancel_step(self, step):
        """
        Interrupts code that runs on the main thread without a call, again each second until it has ended.
        """
        if not step.over:
            step.reason = step.reason or 'timeout'
            self._runtime.interrupt_main(step)
            self.after(_INTERRUPT_AGAIN_SECONDS, self.cancel_step, step)

    # The end of the process.

    def take_stop(self, connection, grace_seconds):
        """Accepts a STOP from a data connection. Called in the thread that read the frame."""
        self._stoppers.append(connection)
        self.post(self.stop, grace_seconds)

    def stop(self, grace_seconds):
        runtime = self._runtime
        self.after(max(grace_seconds, _LEAST_GRACE_SECONDS), self._stop_late, grace_seconds)
        if runtime.stopping:
            return
        runtime.stopping = True
        self.assign()
        for connection in self._data:
            # Calls that wait in the kernel are read here and refused below.
            read_rest(connection, _LAST_READS)
            for call_id in list(connection.queued):
                if connection.queued.pop(call_id, None) is not None:
                    connection.send(protocol.error_frame(call_id, protocol.CODE_PROTOCOL, 'the instance is stopping'))
            for call in list(connection.running.values()):
                self._cancel(call, 'stop')
        if runtime.step is not None:
            runtime.step.reason = 'stop'
            self.cancel_step(runtime.step)
        runtime.reader.wake()

    def _stop_late(self, grace_seconds):
        what = 'pre_stop' if self._runtime.in_pre_stop else 'stopping the running calls'
        message = '%s timed out after %g s' % (what, grace_seconds)
        log('rookery_runtime: %s' % message)
        self.end({'code': protocol.CODE_PRE_STOP, 'message': message})

    def end(self, error):
        """
        Sends STOPPED, with `error` if that is not None, and ends the process with exit code 0.

        May be called from any thread. Only the first call has an effect.
        """
        self._end_lock.acquire()
        try:
            for connection in self._data:
                # Closing a socket with unread bytes would discard answers that the client has not read yet.
                read_rest(connection, _LAST_READS)
            for connection in self._stoppers:
                connection.send(protocol.json_frame(protocol.STOPPED, 0, {} if error is None else {'error': error}))
        finally:
            os._exit(0)
