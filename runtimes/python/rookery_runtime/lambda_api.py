"""The HTTP server of the Lambda Runtime API, for one program that asks for events."""
import base64
import http.server
import json
import queue
import select
import socket
import socketserver
import threading

_PREFIX = '/2018-06-01/runtime/'
_PIECE_BYTES = 64 * 1024
_WAITING_PIECES = 64
_STEP_SECONDS = 0.1
#: Size of an error object that a program may send.
_ERROR_BYTES = 1024 * 1024
_HTTP_RESPONSE = 'application/vnd.awslambda.http-integration-response'


class Invocation(object):
    """An event and the answers of the program: ('piece', bytes), then one of 'result', 'end', 'error', 'large'."""

    def __init__(self, request_id, body, headers):
        self.request_id = request_id
        self.body = body
        self.headers = headers
        self.answers = queue.Queue(_WAITING_PIECES)
        self.is_taken = False
        self._is_answered = False
        self._is_over = False

    def answer(self, kind, data):
        """Adds an answer. Waits for the reader of a stream, and gives up when the call is over."""
        while not self._is_over:
            try:
                self.answers.put((kind, data), timeout=_STEP_SECONDS)
                self._is_answered = self._is_answered or kind != 'piece'
                return
            except queue.Full:
                pass

    def end(self):
        """Ends the call. Returns True if the program has answered it."""
        self._is_over = True
        return self._is_answered


class LambdaApi(object):
    def __init__(self, address):
        #: Set when the program asks for its first event.
        self.is_ready = threading.Event()
        #: The error object of a program that could not load its code, or None.
        self.init_error = None
        self.max_bytes = 0
        self._changed = threading.Condition()
        self._current = None
        server = _Server(address, _Requests)
        server.api = self
        threading.Thread(target=server.serve_forever, name='lambda-api', daemon=True).start()

    def reset(self, max_bytes):
        """Forgets the program, before another one is started."""
        self.max_bytes = max_bytes
        self.is_ready.clear()
        self.init_error = None
        self.notify()

    def offer(self, request_id, body, headers):
        with self._changed:
            self._current = Invocation(request_id, body, headers)
            self._changed.notify_all()
            return self._current

    def notify(self):
        """Lets connections of a program that has ended notice its end."""
        with self._changed:
            self._changed.notify_all()

    def take(self, is_gone):
        """Waits for an event and returns it. None: the program has gone."""
        with self._changed:
            if is_gone():
                return None
            self.is_ready.set()
            while True:
                if is_gone():
                    return None
                current = self._current
                if current is not None and not current.is_taken and not current._is_over:
                    current.is_taken = True
                    return current
                self._changed.wait()

    def of(self, request_id):
        """Returns the invocation that the program runs. None: it is another one, or has been answered."""
        current = self._current
        if current is None or current.request_id != request_id or current._is_answered or current._is_over:
            return None
        return current


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 16

    def server_bind(self):
        # Without the look-up of the host's name.
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, _request, _address):
        """Ignores the error: a program that ends closes its connection at any moment."""


class _Requests(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True
    rbufsize = 64 * 1024

    def do_GET(self):
        if self.path != _PREFIX + 'invocation/next':
            return self._refuse(404, 'there is no GET %s' % self.path[:200])
        invocation = self.server.api.take(self._is_gone)
        if invocation is None:
            self.close_connection = True
            return None
        headers = [('Content-Type', 'application/json')] + invocation.headers
        return self._answer(200, 'OK', invocation.body, headers)

    def do_POST(self):
        parts = self.path[len(_PREFIX):].split('/') if self.path.startswith(_PREFIX) else []
        if parts == ['init', 'error']:
            self.server.api.init_error = self._error_of(self._body(_ERROR_BYTES))
            return self._accept()
        if len(parts) != 3 or parts[0] != 'invocation' or parts[2] not in ('response', 'error'):
            self.close_connection = True
            return self._refuse(404, 'there is no POST %s' % self.path[:200])
        invocation = self.server.api.of(parts[1])
        if invocation is None:
            self.close_connection = True
            return self._refuse(400, 'the invocation %s does not run' % parts[1][:100], 'InvalidRequestID')
        if parts[2] == 'error':
            invocation.answer('error', self._error_of(self._body(_ERROR_BYTES)))
            return self._accept()
        if self.headers.get('Lambda-Runtime-Function-Response-Mode', '').lower() == 'streaming':
            return self._stream(invocation)
        body = self._body(self.server.api.max_bytes)
        if body is None:
            invocation.answer('large', int(self.headers.get('Content-Length') or self.server.api.max_bytes + 1))
            self.close_connection = True
            return self._refuse(413, 'the response is larger than %d bytes' % self.server.api.max_bytes, 'RequestEntityTooLarge')
        invocation.answer('result', body)
        return self._accept()

    def _stream(self, invocation):
        trailers = {}
        for piece in self._pieces(trailers):
            invocation.answer('piece', piece)
        kind = trailers.get('lambda-runtime-function-error-type')
        if kind is None:
            invocation.answer('end', self.headers.get('Content-Type', '').startswith(_HTTP_RESPONSE))
        else:
            try:
                body = base64.b64decode(trailers.get('lambda-runtime-function-error-body', ''))
            except ValueError:
                body = b''
            invocation.answer('error', self._error_of(body, kind))
        return self._accept()

    def _error_of(self, body, kind=None):
        kind = kind or self.headers.get('Lambda-Runtime-Function-Error-Type') or 'Runtime.Unknown'
        try:
            error = json.loads((body or b'').decode('utf-8', 'replace'))
        except (ValueError, RecursionError):
            error = None
        if not isinstance(error, dict):
            error = {'errorMessage': (body or b'').decode('utf-8', 'replace')}
        error.setdefault('errorType', kind)
        return error

    def _body(self, most):
        """Returns the body, or None if it is larger than `most` bytes."""
        body = bytearray()
        for piece in self._pieces({}):
            body += piece
            if len(body) > most:
                return None
        return bytes(body)

    def _pieces(self, trailers):
        """Reads the body piece by piece. Adds the trailers of a chunked body. Raises OSError if it is cut off."""
        if 'chunked' not in self.headers.get('Transfer-Encoding', '').lower():
            left = int(self.headers.get('Content-Length') or 0)
            while left > 0:
                piece = self._some(min(left, _PIECE_BYTES))
                left -= len(piece)
                yield piece
            return
        while True:
            left = int(self._line().split(b';')[0], 16)
            if left == 0:
                break
            while left > 0:
                piece = self._some(min(left, _PIECE_BYTES))
                left -= len(piece)
                yield piece
            self._line()
        while True:
            name, _, value = self._line().decode('latin-1').partition(':')
            if not name:
                return
            trailers[name.lower()] = value.strip()

    def _some(self, most):
        piece = self.rfile.read1(most)
        if not piece:
            raise OSError('the body is cut off')
        return piece

    def _line(self):
        line = self.rfile.readline(_PIECE_BYTES)
        if not line.endswith(b'\n'):
            raise OSError('the body is cut off')
        return line.strip()

    def _is_gone(self):
        """Returns True if the program has closed the connection."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b''
        except OSError:
            return True

    def _accept(self):
        return self._answer(202, 'Accepted', b'{"status":"OK"}', [('Content-Type', 'application/json')])

    def _refuse(self, status, message, kind='InvalidRequest'):
        body = json.dumps({'errorMessage': message, 'errorType': kind}).encode('utf-8')
        return self._answer(status, 'Refused', body, [('Content-Type', 'application/json')])

    def _answer(self, status, reason, body, headers):
        """Writes the whole answer at once."""
        lines = ['HTTP/1.1 %d %s' % (status, reason), 'Content-Length: %d' % len(body)]
        lines += ['%s: %s' % header for header in headers]
        if self.close_connection:
            lines.append('Connection: close')
        self.wfile.write(('\r\n'.join(lines) + '\r\n\r\n').encode('latin-1') + body)

    def log_message(self, *_arguments):
        pass
