"""The process of a Python context: reads cells from its channel, runs them, and sends what they give."""
import builtins
import json
import linecache
import os
import signal
import socket
import sys
import threading
import traceback
import types

from rookery_interpreter import cell, display, lines, notebook, shell

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: When memory runs out, the system ends a kernel before the server that can replace it.
_OOM_SCORE = '500'


class Kernel(object):
    """Runs cells one after another with the names of `__main__`."""

    def __init__(self, channel):
        self._channel = channel
        self._requests = channel.makefile('rb')
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._is_interruptible = False
        self._is_interrupted = False
        self._count = 0
        self._flags = 0
        self._loop = None
        self._names = _main_names()
        builtins.display = self.display
        self.shell = shell.Shell(self._names, self.run_source)
        builtins.get_ipython = lambda: self.shell
        signal.signal(signal.SIGINT, self._on_interrupt)

    def serve(self):
        """Runs cells until the server closes the channel."""
        while True:
            line = self._requests.readline()
            if not line:
                return
            request = json.loads(line.decode('ascii'))
            self._run(request['code'], request['env'])
            if os.getpid() != self._pid:
                os._exit(0)  # a copy that the cell made by fork
            self._send({'type': 'end'})

    def display(self, *values, **options):
        """Shows values as results. With `raw=True` they are dicts from MIME types to data."""
        for value in values:
            if options.get('raw'):
                self._send(display.result_of_bundle(value, False))
            else:
                self._send(display.result_of(value, False))

    def run_source(self, source):
        """Runs Python as a cell does and returns the value of the last expression."""
        filename = '<cell %d>' % self._count
        rows = source.splitlines(True)
        linecache.cache[filename] = (len(source), None, rows, filename)
        code = cell.Compiled(source, filename, self._flags)
        self._flags |= code.flags
        if code.body is not None:
            self._evaluate(code.body)
        value = self._evaluate(code.last) if code.last is not None else None
        return None if code.is_quiet else value

    def _run(self, code, env):
        self._count += 1
        before = {name: os.environ.get(name) for name in env}
        os.environ.update(env)
        try:
            value = self._interruptibly(lambda: self.run_source(cell.python_of(code)))
            if value is not None:
                self._names['_'] = value
                self._send(self._interruptibly(lambda: display.result_of(value, True)))
            self._interruptibly(notebook.show_figures)
        except BaseException as error:
            self._is_interruptible = False
            self._send(_failure_of(error))
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            for stream in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
                _flush(stream)

    def _interruptibly(self, function):
        """Runs user code, and nothing else, so that an interrupt can end it."""
        try:
            self._is_interruptible = True
            return function()
        finally:
            self._is_interruptible = False

    def _evaluate(self, code):
        value = eval(code, self._names)
        if code.co_flags & cell.IS_COROUTINE:
            return self._await(value)
        return value

    def _await(self, coroutine):
        import asyncio
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise

    def _send(self, message):
        """Sends one message whole: an interrupt waits."""
        line = lines.line_of(message)
        with self._lock:
            was, self._is_interruptible = self._is_interruptible, False
            try:
                self._channel.sendall(line)
            finally:
                self._is_interruptible = was
        if was and self._is_interrupted:
            self._is_interrupted = False
            raise KeyboardInterrupt()

    def _on_interrupt(self, _number, _frame):
        if self._is_interruptible:
            raise KeyboardInterrupt()
        self._is_interrupted = True


def _main_names():
    """Makes a fresh `__main__`, whose names are those of cells."""
    module = types.ModuleType('__main__')
    module.__dict__['__builtins__'] = builtins.__dict__
    sys.modules['__main__'] = module
    return module.__dict__


def _failure_of(error):
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException:
        text = ''
    try:
        trace = ''.join(_trace_of(error))
    except BaseException:
        trace = name
    return lines.failure(name, text, trace.rstrip('\n'))


def _trace_of(error):
    trace = traceback.TracebackException(type(error), error, error.__traceback__)
    _trim(trace, set())
    return trace.format() if trace.stack else trace.format_exception_only()


def _trim(trace, seen):
    """Removes the frames of the kernel."""
    if trace is None or id(trace) in seen:
        return
    seen.add(id(trace))
    trace.stack[:] = [frame for frame in trace.stack if not frame.filename.startswith(_OURS)]
    _trim(trace.__cause__, seen)
    _trim(trace.__context__, seen)


def _flush(stream):
    try:
        stream.flush()
    except Exception:  # the user's code has closed or replaced it
        pass


def _text_stream(descriptor):
    """Returns a stream that writes each line at once, and accepts every text."""
    return open(descriptor, 'w', encoding='utf-8', errors='backslashreplace', buffering=1, closefd=False)


def main():
    """Serves the channel whose descriptor is the last argument."""
    channel = socket.socket(fileno=int(sys.argv.pop()))
    channel.set_inheritable(False)
    try:
        with open('/proc/self/oom_score_adj', 'w') as score:
            score.write(_OOM_SCORE)
    except OSError:
        pass
    sys.stdout = sys.__stdout__ = _text_stream(1)
    sys.stderr = sys.__stderr__ = _text_stream(2)
    notebook.install()
    sys.argv[:] = ['']
    kernel = Kernel(channel)
    sys.path[0] = ''
    kernel.serve()
