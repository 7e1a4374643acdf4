"""
The runtime of code that was written for AWS Lambda.

Serves the Lambda Runtime API (2018-06-01) on the loopback of the sandbox, and starts the program that asks it
for events: the code's `bootstrap`, its `awslambdaric`, or a client of ours. The program gets one call at a
time. A program that ends, or whose call is cancelled, is started again for the next call.
"""
import base64
import codecs
import glob
import json
import os
import queue
import subprocess
import threading
import time

from . import protocol
from .failures import CallFailure, log
from .http_program import HttpProgram, NotServing
from .lambda_api import LambdaApi
from .runtime import Runtime
from .values import NotJson

#: Second argument of the command line, after a shell that is never run.
MARK = 'rookery-lambda'
_STEP_SECONDS = 0.05
_START_STEP_SECONDS = 0.005
#: Time by which an answer may become visible later than the end of the program.
_LAST_SECONDS = 0.3
_NO_LIMIT_SECONDS = 900.0
_SHOWN_CHARS = 24 * 1024
_END_OF_HEAD = b'\0' * 8
#: A caller with `bytes` in this header reads the chunks of a response as they are.
_STREAM_HEADER = 'x-rookery-response-stream'
#: The directory that shows the files of layers.
_LAYERS = '/opt'
#: Longest time in which an interpreter tells its version.
_VERSION_SECONDS = 20
_PYTHON_VERSION = 'import sys; print("%d.%d" % sys.version_info[:2])'
_NODE_VERSION = 'process.versions.node.split(".")[0]'
_HERE = os.path.dirname(os.path.abspath(__file__))


def is_lambda(argv):
    """Returns True if this command line of the service is for code of Lambda."""
    return len(argv) == 4 and argv[1] == MARK


def serve(listener, secret, argv):
    """Serves one instance. `argv` ends with the paths of Node.js and of its client, or two empty texts. Never returns."""
    address = os.environ['AWS_LAMBDA_RUNTIME_API'].rpartition(':')
    api = LambdaApi((address[0], int(address[2])))
    Runtime(listener, _Code(api, argv[2], argv[3]).load).run(secret)


class _Code(object):
    """The program that asks for events, presented as the functions that INIT loads."""

    is_async = False

    def __init__(self, api, node, node_client):
        self._api = api
        self._node = node
        self._node_client = node_client
        self._program = None
        self._turn = threading.Lock()
        self._max_result_bytes = 0
        self._handler = ''
        self._arn = ''
        self.handler = self._invoke
        self.initializer = None
        self.pre_stop = self._stop

    def load(self, message):
        """Reads the settings from INIT and starts the program. Returns this object when it asks for an event."""
        self._max_result_bytes = message['maxResultBytes']
        self._handler = message.get('handler') or ''
        version = os.environ['AWS_LAMBDA_FUNCTION_VERSION']
        self._arn = 'arn:aws:lambda:%s:000000000000:function:%s' % (os.environ['AWS_REGION'], os.environ['AWS_LAMBDA_FUNCTION_NAME'])
        if version != '$LATEST':
            self._arn += ':' + version
        self._start()
        return self

    def _start(self):
        """Starts the program and waits until it asks for an event. Raises CallFailure (4001) if it does not."""
        self._api.reset(self._max_result_bytes)
        env = dict(os.environ)
        root = env['LAMBDA_TASK_ROOT']
        try:
            self._add_paths(env, root)
            self._program = HttpProgram(self._argv(root), env)
        except NotServing as failure:
            raise CallFailure(protocol.CODE_LOAD, 'cannot load the handler %s: %s' % (self._handler, failure))
        try:
            while not self._api.is_ready.wait(_START_STEP_SECONDS):
                failed = self._api.init_error
                if failed is None and self._program.has_ended():
                    time.sleep(_LAST_SECONDS)
                    failed = self._api.init_error or _exit_error(self._program.wait(), None)
                if failed is not None:
                    raise failure_of(protocol.CODE_LOAD, 'cannot load the handler %s: %s' % (self._handler, '%s'), failed)
        except BaseException:
            self._program.kill()
            raise

    def _add_paths(self, env, root):
        """Adds the directories of the code and of its layers to the paths, in the order of AWS Lambda."""
        python = _versions_of('python/lib/python%s/site-packages', ['python3', '-c', _PYTHON_VERSION])
        _extend(env, 'PYTHONPATH', [root] + python + _existing('python'), is_first=True)
        node = [] if self._node == '' else _versions_of('nodejs/node%s/node_modules', [self._node, '-p', _NODE_VERSION])
        _extend(env, 'NODE_PATH', node + _existing('nodejs/node_modules'), is_first=True)
        _extend(env, 'LD_LIBRARY_PATH', _existing('lib'))
        _extend(env, 'PATH', _existing('bin'))

    def _argv(self, root):
        for bootstrap in (os.path.join(root, 'bootstrap'), os.path.join(_LAYERS, 'bootstrap')):
            if os.path.isfile(bootstrap) and os.access(bootstrap, os.X_OK):
                return [bootstrap]
        module = os.path.join(root, self._handler.rpartition('.')[0])
        ends = [end for end in ('.py', '.js', '.mjs', '.cjs') if os.path.isfile(module + end)]
        if ends and ends[0] != '.py':
            if self._node == '':
                raise NotServing('%s%s needs Node.js, which was not found' % (module, ends[0]))
            return [self._node, self._node_client]
        if os.path.isdir(os.path.join(root, 'awslambdaric')):
            return ['python3', '-m', 'awslambdaric', self._handler]
        return ['python3', os.path.join(_HERE, 'lambda_python.py')]

    def _invoke(self, _event, context):
        # A call that waits for its turn can be cancelled between two steps.
        while not self._turn.acquire(timeout=_STEP_SECONDS):
            pass
        try:
            if self._program.has_ended():
                self._start()
            invocation = self._api.offer(context.request_id, bytes(context._call.body), self._headers(context))
            try:
                return self._result_of(invocation, context)
            finally:
                # A program that still runs this call, or was cancelled, must not get the next one.
                if not invocation.end():
                    self._program.kill()
                    self._program.wait()
        finally:
            self._turn.release()

    def _result_of(self, invocation, context):
        stream = context._call.stream()
        is_raw = context.headers.get(_STREAM_HEADER) == 'bytes'
        collected = _RawChunks(stream) if is_raw and stream is not None else _Collected(self._max_result_bytes, stream)
        while True:
            try:
                kind, data = invocation.answers.get(timeout=_STEP_SECONDS)
            except queue.Empty:
                if self._program.has_ended():
                    self._after_end(invocation)
                continue
            if kind == 'piece':
                collected.add(data)
            elif kind == 'end':
                return collected.value(data)
            elif kind == 'result':
                return _value(data)
            elif kind == 'large':
                raise CallFailure(
                    protocol.CODE_TOO_LARGE, 'response body size %d exceeds the limit of %d' % (data, self._max_result_bytes))
            else:
                raise failure_of(protocol.CODE_HANDLER, 'Fail to run user call handler. err: %s.', data)

    def _after_end(self, invocation):
        """Starts a program that has ended before it took the call. Otherwise the call fails, unless it is answered."""
        code = self._program.wait()
        if not invocation.is_taken:
            self._start()
            self._api.notify()
            return
        time.sleep(_LAST_SECONDS)
        if invocation.answers.empty():
            error = _exit_error(code, invocation.request_id)
            log('%s: %s' % (error['errorType'], error['errorMessage']))
            raise failure_of(protocol.CODE_HANDLER, 'Fail to run user call handler. err: %s.', error)

    def _headers(self, context):
        deadline = context.deadline
        trace = context.traceparent.split('-')
        headers = [
            ('Lambda-Runtime-Aws-Request-Id', context.request_id),
            ('Lambda-Runtime-Deadline-Ms', '%d' % ((time.time() + _NO_LIMIT_SECONDS if deadline is None else deadline) * 1000)),
            ('Lambda-Runtime-Invoked-Function-Arn', self._arn),
            ('Lambda-Runtime-Trace-Id', 'Root=1-%s-%s;Parent=%s;Sampled=1' % (trace[1][:8], trace[1][8:], trace[2])),
        ]
        sent = _client_context(context.headers.get('x-amz-client-context'))
        return headers if sent is None else headers + [('Lambda-Runtime-Client-Context', sent)]

    def _stop(self, _context):
        if self._program is not None:
            self._program.stop()


class _Collected(object):
    """The pieces of a streamed response. Text goes to the call's stream at once, if there is one."""

    def __init__(self, most, stream):
        self._most = most
        self._stream = stream
        self._bytes = bytearray()
        self._decoder = codecs.getincrementaldecoder('utf-8')('replace')
        #: The head before the body, for a response of HTTP. None: no head is expected, or it is complete.
        self._head = None

    def add(self, piece):
        if self._stream is not None:
            self._write(self._decoder.decode(piece))
            return
        self._bytes += piece
        if len(self._bytes) > self._most:
            raise CallFailure(
                protocol.CODE_TOO_LARGE, 'response body size %d exceeds the limit of %d' % (len(self._bytes), self._most))

    def _write(self, text):
        if text:
            self._stream.write(text)

    def value(self, has_head):
        """Returns the value of the call, or None after a stream."""
        if self._stream is not None:
            self._write(self._decoder.decode(b'', True))
            return None
        data = bytes(self._bytes)
        if has_head and _END_OF_HEAD in data:
            head, _, body = data.partition(_END_OF_HEAD)
            answer = _value(head)
            if isinstance(answer, dict):
                return dict(answer, body=body.decode('utf-8', 'replace'))
        return _value(data)


class _RawChunks(object):
    """The pieces of a streamed response, for a caller that reads them as they are."""

    def __init__(self, stream):
        self._stream = stream
        self._has_any = False

    def add(self, piece):
        self._stream.write_raw(bytes(piece))
        self._has_any = True

    def value(self, _has_head):
        # An empty chunk tells an empty stream from the value None.
        if not self._has_any:
            self._stream.write_raw(b'')


def _existing(name):
    """Returns a list with this directory of the layers, or an empty list if no layer has it."""
    path = os.path.join(_LAYERS, name)
    return [path] if os.path.isdir(path) else []


def _versions_of(form, command):
    """Returns a list with the directory of the layers for the version that the command prints. Runs it only if needed."""
    if not glob.glob(os.path.join(_LAYERS, form % '*')):
        return []
    try:
        version = subprocess.check_output(command, timeout=_VERSION_SECONDS).decode('ascii').strip()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NotServing('the version of %s cannot be read: %s' % (command[0], error))
    return _existing(form % version)


def _extend(env, name, paths, is_first=False):
    """Adds paths to a variable: before its value if `is_first`, else behind it."""
    before = [env[name]] if env.get(name) else []
    together = paths + before if is_first else before + paths
    if together:
        env[name] = os.pathsep.join(together)


def _value(body):
    """Returns the value of a JSON body, or the text of another body; None for an empty one. Raises NotJson."""
    try:
        text = body.decode('utf-8')
    except UnicodeError:
        raise NotJson('the response is not text in utf-8')
    if text == '':
        return None
    try:
        return json.loads(text)
    except RecursionError:
        raise NotJson('it is nested too deeply')
    except ValueError:
        return text


def _client_context(sent):
    """Returns the decoded client context as one line of ASCII, or None if there is none."""
    try:
        return None if not sent else json.dumps(json.loads(base64.b64decode(sent, validate=True).decode('utf-8')))
    except (ValueError, RecursionError):
        return None


def _exit_error(code, request_id):
    what = 'signal: %d' % -code if code < 0 else 'exit status %d' % code
    start = '' if request_id is None else 'RequestId: %s Error: ' % request_id
    return {'errorType': 'Runtime.ExitError', 'errorMessage': '%sRuntime exited with error: %s' % (start, what)}


def failure_of(code, form, error):
    """
    Returns the CallFailure of an error object. Its text ends with the object in a line of its own, which the
    API of AWS Lambda returns to its clients.
    """
    kind, message = str(error.get('errorType') or 'Error'), str(error.get('errorMessage') or '')
    shown = '%s: %s' % (kind, message[:_SHOWN_CHARS]) if message else kind
    detail = json.dumps(error, separators=(',', ':'))
    if len(detail) > _SHOWN_CHARS:
        detail = json.dumps({'errorMessage': message[:_SHOWN_CHARS // 8], 'errorType': kind[:200]}, separators=(',', ':'))
    return CallFailure(code, '%s\n%s' % (form % shown, detail))
