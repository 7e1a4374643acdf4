"""The control thread: accepts, shakes hands, cancels, pings, stops, and notices who has gone."""
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
#: epoll takes no more than 24 days; a longer wait is several.
_LONGEST_WAIT_SECONDS = 24 * 60 * 60
#: So that a grace of 0 still lets an instance say that nothing had to be stopped.
_LEAST_GRACE_SECONDS = 0.1
_WATCH = select.EPOLLRDHUP
#: But 32 and 33, which are the C library's own. (`_signal`, since `signal` makes an enumeration's member of every number.)
_SIGNALS = set(range(1, _signal.NSIG)) - {32, 33}
#: How long the main thread may take to load the code before the control thread begins: it would take turns with it, which costs each more
#: than a small load.
_LEAD_SECONDS = 0.02
#: Reads of 64 KiB at the end.
_LAST_READS = 16


class Control(object):
    """
    Parked in the kernel without a timeout, but while something has a time limit. Everything here happens in this thread,
    except `post`, `pause`, `resume`, `take_stop` and `end`, and what the main thread serves before this one begins (`lead`). It reads the data connections too when the main thread does not come back to them: at
    the end, and while an initializer is stuck.
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
        #: Taken by whoever ends the process, and never given back.
        self._end_lock = threading.Lock()
        #: Guards who reads which connection.
        self._places = threading.Lock()
        #: Released when the control thread shall begin.
        self._begun = threading.Lock()
        self._begun.acquire()
        #: Taken by whoever has the turns; by the control thread for good.
        self._turns = threading.Lock()
        self._lead_end = 0.0
        #: Whether its thread is there.
        self.is_started = False
        self._epoll.register(self._wake_in, select.EPOLLIN)
        self._epoll.register(listener.fileno(), select.EPOLLIN)

    def post(self, function, *arguments):
        """Has the control thread do something; from any thread or signal handler."""
        self._inbox.append((function, arguments))
        try:
            os.write(self._wake_out, b'.')
        except BlockingIOError:  # it has plenty of reasons to wake up already
            pass

    def descriptors(self):
        """What a forked child must not keep open."""
        return [self._wake_in, self._wake_out, self._epoll.fileno(), self._listener.fileno()]

    def discard(self):
        """Of one that was never started: closes all but the listener."""
        self._epoll.close()
        os.close(self._wake_in)
        os.close(self._wake_out)

    # The thread.

    def open(self, secret, lead_seconds=_LEAD_SECONDS):
        """Before anything is served."""
        # Not earlier: it is the listener of any program that the process may become.
        self._listener.setblocking(False)
        self._lead_end = monotonic() + lead_seconds
        # Last: the thread may wait for it.
        self._secret = secret.encode('utf-8')

    def start(self):
        """
        Once. In a process that has the rights of the user: those are each thread's own. May come before `open`, where there is time: a new thread
        takes turns with the one that loads the code. It sleeps until `begin` is called, after `open` for a moment at most.
        """
        self.is_started = True
        # Not of `threading`: nobody waits until it runs, and it is no thread of the user's code, which may count and join those.
        _thread.start_new_thread(self.run, ())

    def run(self):
        # Signals are the main thread's.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _SIGNALS)
        wait = _LEAD_SECONDS
        while wait > 0 and not self._begun.acquire(True, wait):
            wait = _LEAD_SECONDS if self._secret is None else self._lead_end - monotonic()
        self._turns.acquire()
        while True:
            self.serve(max(0, min(self._timers[0][0] - monotonic(), _LONGEST_WAIT_SECONDS)) if self._timers else -1)

    def lead(self):
        """
        In the main thread, once, after `start`: serves until a data connection has been greeted, or the time for it is over. False: it was
        over before.
        """
        if not self._turns.acquire(False):
            return False
        # A handler of the user's code must not cut what is done here.
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
        """The control thread serves from now on, if it does not yet."""
        self._begun.release()

    def serve(self, seconds):
        """Waits for so long at most, and serves what there is; in the thread that has the turns."""
        try:
            ready = self._epoll.poll(seconds)
        except (OSError, ValueError) as error:
            end_without_descriptors(error)
        try:
            self._turn(ready)
        except Exception as error:  # a fault of ours must not end the instance
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
        """As `after`, with the time of the monotonic clock."""
        heapq.heappush(self._timers, (time, next(self._timer_numbers), function, arguments))

    def forget(self, function):
        """Takes back what `after` was asked for, so that an idle instance is not woken for nothing."""
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
            # The user's code has all descriptors: ask again later, not at once and for ever.
            self._epoll.unregister(self._listener.fileno())
            self.after(_ACCEPT_PAUSE_SECONDS, self._epoll.register, self._listener.fileno(), select.EPOLLIN)
            return
        self.greet(sock)

    def greet(self, sock):
        """Of a connection that was accepted: waits for its HELLO."""
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
        # An end that came with data: nobody waits for the last data on a data connection.
        gone = events & (select.EPOLLHUP | select.EPOLLERR) or (events & _WATCH and connection.role != 'control')
        if not alive or gone:
            self._end(connection)

    def _end(self, connection):
        if connection.ended:
            return
        connection.shut()  # first, so that nobody stays blocked in it
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
        answer = {'version': protocol.VERSION, 'runtime': _RUNTIME, 'sdk': _SDK, 'state': self._runtime.state,
                  'stopsOverData': True}
        if self._runtime.state == 'failed':
            answer['error'] = self._runtime.refusal
        connection.send(protocol.json_frame(protocol.HELLO_OK, 0, answer))
        if role == 'control':
            connection.on_frame = self._on_frame
        else:
            connection.on_frame = self._runtime.on_frame
            self._data.append(connection)
            self._place(connection)

    # Who reads.

    def assign(self):
        """Decides for every data connection who reads it; after any change of what the decision rests on."""
        for connection in self._data:
            self._place(connection)

    def pause(self, connection):
        """Reads no more of it: enough of its calls wait. From the thread that reads it."""
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
        elif kind == protocol.STOP:
            grace_seconds = protocol.read_stop(data[start:end])
            self._stoppers.append(connection)
            self.stop(grace_seconds)
        else:
            raise ProtocolError('a frame of type %d has no place on a control connection' % kind)

    def _find(self, client, call_id):
        """The open calls of that id; there is at most one, since a client has one data connection."""
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
                # It may wait in the kernel while a handler runs: read it, so that it is answered now.
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
        """A running call. Its code may swallow the exception, so it is raised again until the call has ended."""
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
        """The same for code that runs on the main thread without a call."""
        if not step.over:
            step.reason = step.reason or 'timeout'
            self._runtime.interrupt_main(step)
            self.after(_INTERRUPT_AGAIN_SECONDS, self.cancel_step, step)

    # The end.

    def take_stop(self, connection, grace_seconds):
        """A STOP of a data connection, in the thread that read it."""
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
            # To be refused.
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
        """Says how it ended and ends the process; from any thread, and the first that comes says it."""
        self._end_lock.acquire()
        try:
            for connection in self._data:
                # An end with unread bytes would take the answers before it along.
                read_rest(connection, _LAST_READS)
            for connection in self._stoppers:
                connection.send(protocol.json_frame(protocol.STOPPED, 0, {} if error is None else {'error': error}))
        finally:
            os._exit(0)
