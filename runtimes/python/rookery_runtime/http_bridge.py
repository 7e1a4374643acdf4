"""
The runtime of programs that speak HTTP.

Translates calls of the runtime protocol into requests to the user's server, as its profile says. The rest of the
runtime treats this module as user code, so order, cancellation, streams and limits are the usual ones.
"""
import codecs
import functools
import io
import json
import os
import re
import socket
import sys
import threading
import time

from . import http_program, lambda_bridge, protocol
from .failures import CallFailure, log
from .http_exchange import FAILURES, ByteLimiter, Connection, length_of, read_pieces, text_of
from .http_profile import HttpProfile, cloud_event, take_profile
from .http_program import HttpProgram, Neighbour, NotServing
from .runtime import Runtime
from .values import NotJson

#: Length of a failed answer's body that an error message repeats.
_SHOWN_CHARS = 1000
_CONNECTIONS_OF_A_CLIENT = 2
_REFUSE_SECONDS = 10.0
_EXIT_NOT_SERVING = 70
#: Headers of a call that describe its connection or the encoding of its bodies. They do not apply to the
#: request to the user's server.
_OF_THE_CONNECTION = frozenset(('accept-encoding', 'connection', 'content-encoding', 'content-length', 'host', 'transfer-encoding'))


class HttpFailure(Exception):
    """The user's server failed. The text has its status and the beginning of its answer."""


def serve(listener, secret, argv):
    """Starts the user's server, unless `argv` is empty, and serves one instance. Never returns."""
    if lambda_bridge.is_lambda(argv):
        lambda_bridge.serve(listener, secret, argv)
    serve_when_ready(listener, secret, lambda: HttpProgram(argv, profile=take_profile()) if argv else Neighbour())


def serve_when_ready(listener, secret, start):
    """Serves one instance when the HttpProgram that `start()` returns is ready. Never returns."""
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
    Runtime(listener, _Code(program, program.profile).load).run(secret)


def _refuse(listener, message):
    """
    Answers connections with the reason of the failure for up to 10 s, then ends the process with exit code
    70.

    Exits only after the time limit, because an earlier exit could hide the answer.
    """
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
    """The user's server, presented as the functions that INIT loads."""

    is_async = False

    def __init__(self, program, profile=None):
        self._program = program
        self._profile = profile or HttpProfile()
        self._local = threading.local()
        self._limiter = ByteLimiter()
        self._max_result_bytes = 0
        self._name = ''
        self.handler = self._invoke
        self.initializer = None
        self.pre_stop = self._stop

    def load(self, message):
        """Reads the settings from INIT. Replaces the loading of modules and returns this object."""
        self._max_result_bytes = message['maxResultBytes']
        self._name = message.get('handler') or ''
        if message.get('initializer'):
            self.initializer = functools.partial(self._initialize, message['initializer'])
        return self

    def _invoke(self, _event, context):
        call = context._call
        headers = _headers(context, self._name, self._profile, call.body)
        response = self._post(self._profile.call_path, bytes(call.body), headers)
        try:
            is_stream = not response.headers.get('Content-Length') and call.stream() is not None
            if is_stream and 200 <= response.status < 300 and not _is_json(response):
                return self._pass_on(response, call.stream())
            return _value(response, self._read(response))
        finally:
            self._limiter.hold(0, 0)

    def _initialize(self, name, context):
        response = self._post(self._profile.init_path, b'{}', _headers(context, name))
        try:
            _check_status(response, self._read(response))
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
        except BaseException:  # cancelled: the closed connection notifies the server
            connection.close()
            raise

    def _read(self, response):
        """
        Returns the whole body. Afterwards the connection is free for the next call, or closed.

        Raises CallFailure if the body exceeds the limit of a result.
        """
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
        """
        Writes each event of an event stream to the call's stream as soon as it arrives.

        For another type of body, writes each piece of text.
        """
        is_events = response.headers.get('Content-Type', '').startswith('text/event-stream')
        charset = 'utf-8' if is_events else _charset(response)
        decoder = _decoder(charset)
        reader = _Events(stream.write, self._limiter, self._max_result_bytes) if is_events else None
        try:
            for piece in read_pieces(response):
                text = _decode(decoder, piece, False, charset, response)
                if reader is not None:
                    reader.add(text)
                elif text:
                    stream.write(text)
            _decode(decoder, b'', True, charset, response)
        except BaseException as error:
            raise self._given_up(error)
        return None

    def _given_up(self, error):
        """
        Closes the connection of an answer that was not read to its end, and returns the exception to raise.

        The closed connection notifies the server.
        """
        self._connection().close()
        return HttpFailure('its answer was cut off: %s' % text_of(error)) if isinstance(error, FAILURES) else error

    def _connection(self):
        """Returns the connection of the current thread. Each thread that runs calls has one."""
        connection = getattr(self._local, 'connection', None)
        if connection is None:
            connection = self._local.connection = Connection(http_program.address_of(self._profile))
        return connection


class _Events(object):
    """
    Extracts the data of the events in an event stream.

    An event above the limit ends the call with CallFailure, since it has to be held in memory as a whole.
    """

    def __init__(self, write, limiter, max_chars):
        self._write = write
        self._limiter = limiter
        self._max_chars = max_chars
        #: The incomplete last line. It may arrive in many small pieces.
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
            # Counts 1 for the line itself, because empty lines use memory too.
            self._data_chars += len(data) + 1


def _too_large(size, most):
    return CallFailure(protocol.CODE_TOO_LARGE, 'response body size %d exceeds the limit of %d' % (size, most))


def _headers(context, handler, profile=None, body=b''):
    """
    Returns the headers of the request: those of the call, overridden by the runtime's own.

    Each name occurs once, since a server may join two headers of one name into an invalid value.
    """
    ours = {'Content-Type': 'application/json', 'X-Instance-Id': context.instance_id}
    for name, value in (('X-Trace-Id', context.trace_id), ('X-Request-Id', context.request_id),
                        ('traceparent', context.traceparent), ('X-Instance-Session', context.session_id), ('X-Rookery-Handler', handler)):
        if value:
            ours[name] = value
    if profile is not None:
        if profile.session_header and context.session_id:
            ours[profile.session_header] = context.session_id
        # Without the id the call's own headers do not make an event.
        if profile.takes_cloud_events and 'ce-id' not in (name.lower() for name in context.headers):
            ours.update(cloud_event(body, context.request_id or context.trace_id))
    taken = _OF_THE_CONNECTION.union(name.lower() for name in ours)
    headers = {name: value for name, value in context.headers.items() if name.lower() not in taken}
    headers.update(ours)
    return {name: value.encode('utf-8') for name, value in headers.items()}


def _parse_int(digits):
    """
    Parses an integer with the limit of 4300 digits that newer Pythons have. Raises ValueError above.

    In older Pythons the time grows with the square of the digits, and no other thread runs meanwhile.
    """
    if len(digits) > _MOST_DIGITS:
        raise ValueError('a number of %d digits' % len(digits))
    return int(digits)


_MOST_DIGITS = 4300
_LONG_NUMBER = re.compile('[0-9]{%d}' % (_MOST_DIGITS + 1))
_PARSE_INT = None if hasattr(sys, 'set_int_max_str_digits') else _parse_int


def _is_json(response):
    return response.headers.get('Content-Type', '').split(';')[0].strip().lower() == 'application/json'


def _check_status(response, body):
    if not 200 <= response.status < 300:
        location = response.getheader('Location')
        leads = '' if location is None else ' (Location: %s, which is not followed)' % location[:_SHOWN_CHARS]
        shown = body.decode('utf-8', 'replace')[:_SHOWN_CHARS]
        raise HttpFailure('status %d%s: %s' % (response.status, leads, shown))


def _value(response, body):
    """
    Returns the value of a JSON body, or the text of another body; None for an empty one.

    Raises HttpFailure if the status is not 2xx, and NotJson if the body is neither JSON nor text.
    """
    _check_status(response, body)
    charset = _charset(response)
    text = _decode(_decoder(charset), bytes(body), True, charset, response)
    if text == '':
        return None
    try:
        return json.loads(text, parse_int=_PARSE_INT)
    except RecursionError:
        raise NotJson('it is nested too deeply')
    except ValueError as error:
        if _LONG_NUMBER.search(text) and _is_long_json(text):
            raise NotJson('it has a number of more than %d digits' % _MOST_DIGITS)
        if _is_json(response):
            raise NotJson('its Content-Type is application/json, but its body is not JSON: %s' % error)
        return text


def _is_long_json(text):
    try:
        json.loads(text, parse_int=len)
    except (ValueError, RecursionError):
        return False
    return True


# Looks the codecs up while Python's own files are visible. The bridge of a container later runs inside the
# container, where those files do not exist.
for _name in ('ascii', 'cp1252', 'iso8859-1', 'iso8859-15', 'utf-8-sig', 'utf-16', 'utf-16-be', 'utf-16-le'):
    codecs.lookup(_name)


def _charset(response):
    return response.headers.get_content_charset() or 'utf-8'


def _decoder(charset):
    """Returns an incremental decoder. Raises NotJson if the charset is unknown."""
    try:
        b' '.decode(charset)
    except UnicodeError:  # the byte is half of a character
        pass
    except (LookupError, ValueError):
        raise NotJson('the charset %.64s of its body is not known' % charset)
    # `utf-8-sig` removes a byte order mark, which is no part of the text.
    return codecs.getincrementaldecoder('utf-8-sig' if codecs.lookup(charset).name == 'utf-8' else charset)()


def _decode(decoder, data, is_end, charset, response):
    try:
        return decoder.decode(data, is_end)
    except UnicodeError:
        coding = response.headers.get('Content-Encoding')
        why = '' if coding is None else '; its Content-Encoding %.64s was not asked for' % coding
        raise NotJson('its body is not text in %s%s' % (charset, why))
