"""
The runtime of programs that speak HTTP: calls of the runtime protocol become requests to the user's server on 127.0.0.1:8000.

To the rest of the runtime it is user code, so order, cancelling, streams and limits are the same as everywhere.
"""
import codecs
import functools
import io
import json
import os
import socket
import sys
import threading
import time

from . import http_program, protocol
from .failures import CallFailure, log
from .http_exchange import FAILURES, ByteLimiter, Connection, length_of, read_pieces, text_of
from .http_program import HttpProgram, Neighbour, NotServing
from .runtime import Runtime

#: How much of a failure's body is reported.
_SHOWN_CHARS = 1000
_CONNECTIONS_OF_A_CLIENT = 2
_REFUSE_SECONDS = 10.0
_EXIT_NOT_SERVING = 70
#: Headers of a call that are about its connection or the form of its bodies, and so not about ours: the answer is read as it comes.
_OF_THE_CONNECTION = frozenset(('accept-encoding', 'connection', 'content-encoding', 'content-length', 'host', 'transfer-encoding'))


class HttpFailure(Exception):
    """The user's server failed: its status and the beginning of its answer."""


def serve(listener, secret, argv):
    """Starts the user's server, unless `argv` is empty, and serves one instance. Never returns."""
    serve_when_ready(listener, secret, lambda: HttpProgram(argv) if argv else Neighbour())


def serve_when_ready(listener, secret, start):
    """Serves one instance once the HttpProgram that `start` gives is ready. Never returns."""
    program = None
    try:
        program = start()
        program.wait_until_ready()
    except NotServing as failure:
        if program is not None:
            program.kill()
        _refuse(listener, str(failure))
    serve_program(listener, secret, program)


def serve_program(listener, secret, program):
    """Serves one instance with a server that is ready. Never returns."""
    program.watch()
    Runtime(listener, _Code(program).load).run(secret)


def _refuse(listener, message):
    """Tells whoever connects why there is nothing to connect to, and ends. Later than the answer, which an exit would hide."""
    log(message)
    answer = protocol.error_frame(0, protocol.CODE_PROTOCOL, message)
    deadline = time.monotonic() + _REFUSE_SECONDS
    kept = []
    try:
        while len(kept) < _CONNECTIONS_OF_A_CLIENT:
            listener.settimeout(max(0.1, deadline - time.monotonic()))
            connection, _address = listener.accept()
            connection.settimeout(1)
            connection.recv(64 * 1024)
            connection.sendall(answer)
            kept.append(connection)
    except (OSError, socket.timeout):
        pass
    time.sleep(max(0, deadline - time.monotonic()))
    os._exit(_EXIT_NOT_SERVING)


class _Code(object):
    """The user's server as the functions that INIT loads."""

    is_async = False

    def __init__(self, program):
        self._program = program
        self._local = threading.local()
        self._limiter = ByteLimiter()
        self._max_result_bytes = 0
        self._name = ''
        self.handler = self._invoke
        self.initializer = None
        self.pre_stop = self._stop

    def load(self, message):
        """Instead of loading modules."""
        self._max_result_bytes = message['maxResultBytes']
        self._name = message.get('handler') or ''
        if message.get('initializer'):
            self.initializer = functools.partial(self._initialize, message['initializer'])
        return self

    def _invoke(self, _event, context):
        call = context._call
        response = self._post('/invoke', bytes(call.body), _headers(context, self._name))
        try:
            is_stream = not response.headers.get('Content-Length') and call.stream() is not None
            if is_stream and 200 <= response.status < 300 and not _is_json(response):
                return self._pass_on(response, call.stream())
            return _value(response, self._read(response))
        finally:
            self._limiter.hold(0, 0)

    def _initialize(self, name, context):
        response = self._post('/init', b'{}', _headers(context, name))
        try:
            _value(response, self._read(response))
        finally:
            self._limiter.hold(0, 0)

    def _stop(self, _context):
        self._program.stop()

    def _post(self, path, body, headers):
        connection = self._connection()
        try:
            return connection.post(path, body, headers)
        except FAILURES as error:
            connection.close()
            self._program.wait_for_end()
            raise HttpFailure('POST %s was not answered: %s' % (path, text_of(error)))
        except BaseException:  # cancelled: the server sees that nobody waits for it
            connection.close()
            raise

    def _read(self, response):
        """The whole body; the connection is free for the next call then, or closed."""
        body, most = bytearray(), self._max_result_bytes
        length = length_of(response)
        try:
            if length is not None and length > most:
                raise _too_large(length, most)
            self._limiter.hold(length or 0, length or 0)
            for piece in read_pieces(response):
                if len(body) + len(piece) > most:
                    raise _too_large(len(body) + len(piece), most)
                self._limiter.hold(len(body) + len(piece), most if length is None else length)
                body += piece
        except BaseException as error:
            raise self._given_up(error)
        return body

    def _pass_on(self, response, stream):
        """Each event of an event stream, each piece of another body, as soon as it is there."""
        is_events = response.headers.get('Content-Type', '').startswith('text/event-stream')
        decoder = codecs.getincrementaldecoder('utf-8')('replace')
        reader = _Events(stream.write, self._limiter, self._max_result_bytes) if is_events else None
        try:
            for piece in read_pieces(response):
                text = decoder.decode(piece)
                if reader is not None:
                    reader.add(text)
                elif text:
                    stream.write(text)
        except BaseException as error:
            raise self._given_up(error)
        return None

    def _given_up(self, error):
        """What ends a call whose answer was not read to its end: the server learns it by the end of the connection."""
        self._connection().close()
        return HttpFailure('its answer was cut off: %s' % text_of(error)) if isinstance(error, FAILURES) else error

    def _connection(self):
        """One per thread that runs calls."""
        connection = getattr(self._local, 'connection', None)
        if connection is None:
            connection = self._local.connection = Connection(http_program.ADDRESS)
        return connection


class _Events(object):
    """Takes the data of events out of an event stream. One that is too large ends the call: it would have to be held as a whole."""

    def __init__(self, write, limiter, max_chars):
        self._write = write
        self._limiter = limiter
        self._max_chars = max_chars
        #: A line that has not ended: pieces of it may be small, and many.
        self._rest = io.StringIO()
        self._data = []
        self._data_chars = 0

    def add(self, text):
        rest = self._rest
        if '\n' in text:
            lines = (rest.getvalue() + text).replace('\r\n', '\n').split('\n')
            rest = self._rest = io.StringIO()
            rest.write(lines.pop())
            for line in lines:
                self._take(line)
        else:
            rest.write(text)
        size = rest.tell() + self._data_chars
        if size > self._max_chars:
            raise CallFailure(protocol.CODE_TOO_LARGE, 'an event of the response exceeds the limit of %d' % self._max_chars)
        self._limiter.hold(size, self._max_chars)

    def _take(self, line):
        if line == '' and self._data:
            self._write('\n'.join(self._data))
            self._data, self._data_chars = [], 0
        elif line.startswith('data:'):
            data = line[6:] if line.startswith('data: ') else line[5:]
            self._data.append(data)
            # An empty line of it costs something too.
            self._data_chars += len(data) + 1


def _too_large(size, most):
    return CallFailure(protocol.CODE_TOO_LARGE, 'response body size %d exceeds the limit of %d' % (size, most))


def _headers(context, handler):
    """Those of the call, and ours in place of any of the same name: a server may join two of one name to nonsense."""
    ours = {'Content-Type': 'application/json', 'X-Instance-Id': context.instance_id}
    for name, value in (('X-Trace-Id', context.trace_id), ('X-Request-Id', context.request_id),
                        ('traceparent', context.traceparent), ('X-Instance-Session', context.session_id), ('X-Rookery-Handler', handler)):
        if value:
            ours[name] = value
    taken = _OF_THE_CONNECTION.union(name.lower() for name in ours)
    headers = {name: value for name, value in context.headers.items() if name.lower() not in taken}
    headers.update(ours)
    return {name: value.encode('utf-8') for name, value in headers.items()}


def _parse_int(digits):
    """As newer Pythons do: the time that older ones take grows with the square of the digits, and nothing else runs meanwhile."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError('a number of %d digits' % len(digits))
    return int(digits)


_MOST_DIGITS = 4300
_PARSE_INT = None if hasattr(sys, 'set_int_max_str_digits') else _parse_int


def _is_json(response):
    return response.headers.get('Content-Type', '').split(';')[0].strip().lower() == 'application/json'


def _value(response, body):
    """JSON as its value, another text as a text. Fails with HttpFailure."""
    text = body.decode('utf-8', 'replace')
    if not 200 <= response.status < 300:
        raise HttpFailure('status %d: %s' % (response.status, text[:_SHOWN_CHARS]))
    if text == '':
        return None
    try:
        return json.loads(text, parse_int=_PARSE_INT)
    except (ValueError, RecursionError):
        return text
