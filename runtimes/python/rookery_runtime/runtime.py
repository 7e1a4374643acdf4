"""The state that the threads share: the instance's state, its queue of calls, its connections."""
import _signal
import atexit
import collections
import os
import signal
import threading
from time import monotonic

from . import entry, forked, interrupt, process, protocol
from .calls import Call, InitRequest
from .context import Context, Facts
from .durable import Durable
from .control import Control
from .execution import Program, cancelled_frame, failure_frame, run_hook
from .failures import CallFailure, log, log_exception, text_of
from .inline import InlineExecutor
from .protocol import ProtocolError
from .reading import MainReader
from .tasks import TaskExecutor
from .threads import ThreadExecutor

_SIGTERM_GRACE_SECONDS = 10
#: Limits of the calls of a single connection that wait here. Above, reading stops: the rest waits in the
#: kernel and at the client.
_MAX_QUEUED_CALLS = 512
_MAX_QUEUED_BYTES = 8 * 1024 * 1024
_LARGE_BODY_BYTES = 64 * 1024


class _Step(Call):
    """User code that runs on the main thread without a call."""

    over = False

    def __init__(self):
        Call.__init__(self, None, 0, b'{}', b'', monotonic())


class Runtime(object):
    def __init__(self, listener, load_code=None):
        """`load_code` makes the code of an INIT. By default the handler that INIT names is loaded."""
        self._load_code = load_code
        self.queue = collections.deque()
        #: The open connections by descriptor.
        self.connections = {}
        self.reader = MainReader()
        self.main_thread = threading.get_ident()
        self.stopping = False
        #: True while an initializer has timed out and still runs.
        self.stuck = False
        #: The user code without a call that runs now, or None.
        self.step = None
        self.in_pre_stop = False
        self.program = None
        #: The state of a durable agent; None for another.
        self.durable = None
        #: The members of the ERROR that refuses calls; None while calls are accepted.
        self.refusal = {'code': protocol.CODE_PROTOCOL, 'message': 'a CALL before INIT'}
        self.executor = InlineExecutor(self)
        #: Unhandled exceptions of the user's signal handlers that were raised in the main thread outside of
        #: any call.
        self._hits = collections.deque()
        self._first_init = None
        self._state = 'new'
        self._init_answer = None
        self._settling = threading.Lock()
        self._pid = os.getpid()
        forked.remember_instance()
        self._is_armed = False
        self._flush_stdout, self._flush_stderr = process.make_standard_streams()
        self.control = Control(self, listener)

    @property
    def state(self):
        return 'stopping' if self.stopping else self._state

    def discard(self):
        """Closes everything that a runtime that never ran has opened, except the listener."""
        self.control.discard()
        for descriptor in self.reader.descriptors():
            os.close(descriptor)

    def arm(self):
        """
        Does the part of `run` that needs no secret and no INIT.

        Called earlier if there is time, in the main thread.
        """
        self._is_armed = True
        process.make_main_module()
        interrupt.install()
        self._pid = os.getpid()
        forked.remember_instance()
        # `signal` converts its arguments and results into enum members, which takes more code than all of
        # this.
        for number in (_signal.SIGTERM, _signal.SIGINT):
            _signal.signal(number, self._on_sigterm)
        # Without this, a signal that arrives just before the main thread waits would be handled after that
        # wait.
        signal.set_wakeup_fd(self.reader.wake_descriptor())
        register_at_fork = getattr(os, 'register_at_fork', None)  # Python 3.7
        if register_at_fork is not None:
            register_at_fork(after_in_child=self._close_in_child)

    def run(self, secret, init=None):
        """
        Serves until a STOP or SIGTERM, and ends the process.

        `secret` and `init` have the meaning as in `serve`.
        """
        if not self._is_armed:
            self.arm()
        process.read_environment()
        self.control.open(secret)
        if not self.control.is_started:
            self.control.start()
        if init is None:
            self.control.begin()
        self._first_init = init
        self._insist(self._serve)
        self.control.end(self._pre_stop())

    def _serve(self):
        """Serves until the runtime stops and no call runs."""
        while True:
            if self._hits:
                self._recover(self._hits[0])
                self._hits.popleft()
            elif self.stopping:
                self.executor.finish_all()
                return
            elif self._first_init is not None:
                init, self._first_init = self._first_init, None
                self._load_first(init)
            else:
                self.executor.run()

    def _insist(self, work, guards=3):
        """
        Calls `work` again after each exception of a signal handler of the user's code, until `work` returns.

        Such an exception may be raised anywhere in the main thread, even in the except clause of this
        function. Each nested guard catches the exceptions of the guard below it.
        """
        while True:
            try:
                return self._insist(work, guards - 1) if guards else work()
            except BaseException as error:
                self._hits.append(error)

    def _load_first(self, init):
        """
        Loads the code and greets the waiting client in one thread.

        The control thread starts to serve afterwards, or earlier if this takes long.
        """
        try:
            self.initialize(InitRequest(None, init))
            if self.control.lead():
                # The INIT arrived together with the greeting.
                while self.queue and self.queue[0].__class__ is InitRequest:
                    self.initialize(self.queue.popleft())
        finally:
            self.control.begin()

    # Reading.

    def on_frame(self, connection, kind, call_id, data, start, end):
        """Handles a frame of a data connection in the thread that reads it. Raises ProtocolError."""
        if kind == protocol.CALL:
            body = start + 2
            if body <= end:
                body += data[start] << 8 | data[start + 1]
            if body > end or not call_id or call_id in connection.queued or call_id in connection.running:
                raise ProtocolError('a CALL without a header, or with a call id that is 0 or in use')
            call = Call(connection, call_id, data[start + 2:body], data[body:end], monotonic())
            cancelled = connection.take_early_cancel(call_id)
            if cancelled is not None:
                call.reason = cancelled
                connection.send(cancelled_frame(call))
            elif self.stopping or self.stuck:
                self._refuse(call)
            else:
                connection.queued[call_id] = call
                self.queue.append(call)
                if len(connection.queued) >= _MAX_QUEUED_CALLS or (
                        end - body > _LARGE_BODY_BYTES and _queued_bytes(connection) > _MAX_QUEUED_BYTES):
                    self.control.pause(connection)
        elif kind == protocol.INIT:
            request = InitRequest(connection, protocol.read_json(data[start:end], 'INIT'))
            if self.stopping or self.stuck:
                self._answer_init(request)
            else:
                self.queue.append(request)
        elif kind == protocol.STOP:
            self.control.take_stop(connection, protocol.read_stop(data[start:end]))
        else:
            raise ProtocolError('a frame of type %d has no place on a data connection' % kind)

    # Calls.

    def begin(self, call):
        """Takes a waiting call. Returns False if the call was dropped, or refused and answered."""
        connection = call.connection
        call_id = call.id
        connection.running[call_id] = call
        if connection.queued.pop(call_id, None) is None:
            del connection.running[call_id]
            return False
        if connection.paused and len(connection.queued) <= _MAX_QUEUED_CALLS // 2 and (
                _queued_bytes(connection) <= _MAX_QUEUED_BYTES // 2):
            self.control.resume(connection)
        if self.refusal is None:
            return True
        del connection.running[call_id]
        self._refuse(call)
        return False

    def finish(self, call, frame):
        """Sends the answer of a call that was begun."""
        connection = call.connection
        if os.getpid() != self._pid:  # a child that the handler has forked and that returned from the handler
            forked.leave_child()
        # Set before the check for a stream: a thread that the handler started may be about to create one.
        call.answered = True
        if call._stream is not None:
            call._stream.end()
        if self.durable is not None:
            frame = self.durable.settle(call) + frame
        del connection.running[call.id]
        connection.send(frame)
        try:
            self._flush_stdout()
            self._flush_stderr()
        except (OSError, ValueError):  # the user's code has closed the streams
            pass

    def _recover(self, error):
        """
        Answers the calls that an exception in the main thread, outside of any user code, left unanswered.
        """
        log_exception('an exception outside of any call', error)
        for connection in list(self.connections.values()):
            for call in list(connection.running.values()):
                if call.thread is None and call.task is None:
                    self.finish(call, failure_frame(call, error, call.arrived))

    def interrupt_main(self, step):
        interrupt.interrupt_main(step, self.main_thread)

    def _refuse(self, call):
        error = self.refusal
        if self.stopping:
            error = {'code': protocol.CODE_PROTOCOL, 'message': 'the instance is stopping'}
        call.connection.send(protocol.error_frame(call.id, error['code'], error['message']))

    # Initialization.

    def initialize(self, request):
        """Loads the code once, on the main thread. Answers a later INIT with the outcome of the first."""
        if self._init_answer is not None or self.stopping:
            self._answer_init(request)
            return
        message = request.message
        concurrency = message.get('concurrency')
        limit = message.get('maxResultBytes')
        if not _is_int(concurrency, 1, 1000) or not _is_int(limit, 1, protocol.MAX_FRAME_BYTES - 9):
            request.answer(protocol.error_frame(
                0, protocol.CODE_PROTOCOL, 'INIT needs concurrency, 1 to 1000, and maxResultBytes, 1 to %d' % (
                    protocol.MAX_FRAME_BYTES - 9)))
            return
        self._state = 'initializing'
        step = self.step = _Step()
        try:
            self._load(step, request)
        except CallFailure as failure:
            self._settle(request, failure)
        except BaseException as error:  # cancelled by its deadline, which has set the outcome, or by a stop
            self._settle(request, CallFailure(protocol.CODE_INITIALIZER, 'initializer failed: %s' % text_of(error)))
        step.over = True
        self.step = None
        self.stuck = False
        self.control.post(self._after_init)

    def _after_init(self):
        """Ends the special assignments of INIT. Called in the control thread."""
        self.control.forget(self.give_up_init)
        self.control.assign()

    def _load(self, step, request):
        message = request.message
        started = monotonic()
        timeout = message.get('initTimeoutMs')
        timeout = timeout / 1000.0 if _is_int(timeout, 1, 1 << 40) else None
        handler_name = _text(message, 'handler')
        if not handler_name and self._load_code is None:
            raise CallFailure(protocol.CODE_INITIALIZER, 'empty user call code')
        facts = Facts(message)
        if isinstance(message.get('durable'), dict):
            self.durable = facts.durable = Durable(message['durable'], self.control.data_connection)
            facts.state = facts.durable.state
        with _Bound(self, step, request, timeout, protocol.CODE_LOAD, 'cannot load the handler %s: it did not load within %g s'
                    % (handler_name, timeout or 0)):
            code = interrupt.enter_with(step, self._load_code or _load_code, message)
        loaded = monotonic()
        if code.initializer is not None:
            with _Bound(self, step, request, timeout, protocol.CODE_INITIALIZER_TIMEOUT,
                        'initializer timed out after %g s' % (timeout or 0)):
                self._run_initializer(step, code.initializer, Context(facts, None, timeout and loaded + timeout))
        if facts.durable is not None:
            facts.durable.begin()
        self.program = Program(code.handler, code.pre_stop, facts, message['maxResultBytes'])
        self.program.entries = getattr(code, 'entries', None) or None
        concurrency = message['concurrency']
        if code.is_async:
            executor = TaskExecutor(self, concurrency)
        elif concurrency > 1:
            executor = ThreadExecutor(self, concurrency)
        else:
            executor = self.executor
        timing = {'loadMicros': int((loaded - started) * 1e6), 'initMicros': int((monotonic() - loaded) * 1e6),
                  'beganMicros': int(started * 1e6)}
        self._settle(request, None, timing, executor)

    def _run_initializer(self, step, initializer, context):
        try:
            run_hook(step, initializer, context)
        except interrupt.CallCancelled:
            raise
        except BaseException as error:
            forked.leave_child(error)
            log_exception('initializer failed', error)
            raise CallFailure(protocol.CODE_INITIALIZER, 'initializer failed: %s' % text_of(error))

    def _settle(self, request, failure, timing=None, executor=None):
        """
        Sets the outcome of INIT, from the code or from its deadline. Returns False if it has been set before.
        """
        forked.leave_child()
        with self._settling:
            if self._init_answer is not None:
                return False
            if failure is None:
                self.executor = executor
                self.refusal = None
                self._state = 'ready'
                self._init_answer = protocol.json_frame(protocol.INIT_OK, 0, timing)
            else:
                self.refusal = {'code': failure.code, 'message': failure.message}
                self._state = 'failed'
                self._init_answer = protocol.error_frame(0, failure.code, failure.message)
        self._answer_init(request)
        return True

    def give_up_init(self, bound):
        """Ends a part of INIT whose deadline has passed. Called in the control thread."""
        if bound.over or not self._settle(bound.request, bound.failure):
            return
        log('rookery_runtime: %s' % bound.failure.message)
        self.stuck = True
        self.control.assign()
        while self.queue:
            try:
                item = self.queue.popleft()
            except IndexError:  # the main thread has emptied the queue
                break
            if isinstance(item, InitRequest):
                self._answer_init(item)
            elif item.connection.queued.pop(item.id, None) is not None:
                self._refuse(item)
        self.control.cancel_step(bound.step)

    def _answer_init(self, request):
        answer = self._init_answer
        if answer is None:
            answer = protocol.error_frame(0, protocol.CODE_PROTOCOL, 'the instance is stopping')
        request.answer(answer)

    # The end of the instance.

    def _on_sigterm(self, number, _frame):
        if os.getpid() != self._pid:  # Python 3.6 has no hooks for forks
            self._leave_signals()
            os.kill(os.getpid(), number)
            return
        self.control.post(self.control.stop, _SIGTERM_GRACE_SECONDS)

    def _pre_stop(self):
        """
        Runs pre_stop, the last user code, and the exit functions. Returns the members of an ERROR if pre_stop
        failed, else None.

        The control thread enforces the time limit.
        """
        error = None
        pre_stop = self.program.pre_stop if self.program is not None and self.refusal is None else None
        if pre_stop is not None:
            self.in_pre_stop = True
            try:
                if isinstance(pre_stop, CallFailure):
                    raise pre_stop
                run_hook(_Step(), pre_stop, Context(self.program.facts))
            except BaseException as failure:
                forked.leave_child(failure)
                message = failure.message if isinstance(failure, CallFailure) else text_of(failure)
                error = {'code': protocol.CODE_PRE_STOP, 'message': 'pre_stop failed: %s' % message}
                log_exception('pre_stop failed', failure)
            forked.leave_child()
        try:
            atexit._run_exitfuncs()
            self._flush_stdout()
            self._flush_stderr()
        except BaseException as failure:
            log_exception('an exit function failed', failure)
        return error

    def _leave_signals(self):
        """
        Restores the usual meaning of signals in a child of the user's code.

        The instance's handlers would write to descriptors that belong to the child's own files by then.
        """
        descriptor = signal.set_wakeup_fd(-1)
        if descriptor not in (-1, self.reader.wake_descriptor()):
            signal.set_wakeup_fd(descriptor)
        for number, usual in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
            if signal.getsignal(number) == self._on_sigterm:
                signal.signal(number, usual)

    def _close_in_child(self):
        """
        Closes the instance's descriptors in a child of the user's code, so that the child cannot answer on
        them.
        """
        self._leave_signals()
        for descriptor in self.reader.descriptors() + self.control.descriptors() + list(self.connections):
            try:
                os.close(descriptor)
            except OSError:
                pass


class _Code(object):
    """The functions that INIT names."""


def _load_code(message):
    code_path = _text(message, 'codePath')
    handler_name = _text(message, 'handler')
    if code_path:
        entry.prepare_path(code_path)
    code = _Code()
    handler = entry.load(handler_name, code_path, 'handler')
    code.is_async = entry.is_async(handler)
    code.handler = entry.adapt_handler(handler, handler_name)
    code.initializer = None
    code.pre_stop = None
    name = _text(message, 'initializer')
    if name:
        try:
            code.initializer = entry.adapt_hook(entry.load(name, code_path, 'initializer'), name)
        except CallFailure as failure:
            raise CallFailure(protocol.CODE_INITIALIZER, 'initializer failed: %s' % failure.message)
    name = _text(message, 'preStop')
    if name:
        try:
            code.pre_stop = entry.adapt_hook(entry.load(name, code_path, 'pre_stop'), name)
        except CallFailure as failure:  # reported at the end of the instance too
            code.pre_stop = failure
            log('rookery_runtime: %s' % failure.message)
    durable = message.get('durable')
    names = durable.get('entries') if isinstance(durable, dict) else None
    code.entries = _load_entries(names, code_path) if isinstance(names, dict) else {}
    return code


def _load_entries(names, code_path):
    """Returns the functions that run instead of the handler, as `f(event, context)`. Raises CallFailure."""
    entries = {}
    name = _text(names, 'alarm')
    if name:
        entries['alarm'] = entry.adapt_handler(entry.load(name, code_path, 'alarm entry'), name)
    name = _text(names, 'sleep')
    if name:
        hook = entry.adapt_hook(entry.load(name, code_path, 'sleep entry'), name)
        entries['sleep'] = lambda event, context: hook(context)
    return entries


class _Bound(object):
    """A time limit around a part of INIT."""

    def __init__(self, runtime, step, request, seconds, code, message):
        self.over = False
        self.step = step
        self.request = request
        self.failure = CallFailure(code, message)
        self._runtime = runtime
        self._seconds = seconds

    def __enter__(self):
        if self._seconds is not None:
            control = self._runtime.control
            control.post(control.at, monotonic() + self._seconds, self._runtime.give_up_init, self)

    def __exit__(self, _kind, _error, _trace):
        self.over = True


def _queued_bytes(connection):
    return sum(len(call.body) for call in list(connection.queued.values()))


def _is_int(value, least, most):
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _text(message, name):
    value = message.get(name)
    return value if isinstance(value, str) else ''
