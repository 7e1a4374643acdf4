"""The HTTP server of the interpreter, in the wire format of the E2B code interpreter."""
import argparse
import collections
import http.server
import json
import os
import re
import select
import shutil
import socket
import socketserver
import sys

from rookery_interpreter import lines
from rookery_interpreter.contexts import ClientGone, Contexts, Unknown, Unusable

PORT = 49999
MOST_BODY_BYTES = 64 * 1024 * 1024
#: Starts a kernel without the directories of the server on its path, so that user code cannot import them.
BOOT = 'import sys; sys.path[0] = sys.argv.pop(1); from rookery_interpreter import kernel; kernel.main()'
ALIASES = {
    'py': 'python', 'python3': 'python', 'js': 'javascript', 'node': 'javascript', 'ts': 'typescript',
}
_OF_CONTEXT = re.compile(r'^/contexts/([^/]+)(/restart)?$')


class Refused(Exception):
    """A request that cannot be served; `status` is the status of its answer."""

    def __init__(self, status, text):
        Exception.__init__(self, text)
        self.status = status


class Client(object):
    """The client of an execution: a stream of lines that begins with the first one."""

    def __init__(self, handler):
        self._handler = handler
        self._is_chunked = handler.request_version != 'HTTP/1.0'
        self.has_begun = False

    def begin(self):
        """Sends the head of the answer, once."""
        if self.has_begun:
            return
        self.has_begun = True
        handler = self._handler
        handler.send_response(200)
        handler.send_header('Content-Type', 'application/x-ndjson')
        if self._is_chunked:
            handler.send_header('Transfer-Encoding', 'chunked')
        else:
            handler.close_connection = True
        handler.end_headers()

    def send(self, data):
        """Sends encoded lines. Raises OSError when the connection is gone."""
        self.begin()
        self._handler.wfile.write(b'%x\r\n%s\r\n' % (len(data), data) if self._is_chunked else data)

    def finish(self):
        """Sends the last line and the end of the answer."""
        self.send(lines.END)
        if self._is_chunked:
            self._handler.wfile.write(b'0\r\n\r\n')

    def check(self):
        """Raises ClientGone if the client has closed its connection."""
        connection = self._handler.connection
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        if not poll.poll(0):
            return
        try:
            is_gone = connection.recv(1, socket.MSG_PEEK) == b''
        except OSError:
            is_gone = True
        if is_gone:
            raise ClientGone()


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection. Errors are texts, which the clients show."""

    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True

    def do_GET(self):
        self._answer(self._get)

    def do_POST(self):
        self._answer(self._post)

    def do_DELETE(self):
        self._answer(self._delete)

    def log_message(self, *_):
        """Keeps no log of requests."""

    def _answer(self, serve):
        client = Client(self)
        try:
            body = self._read_body()
            serve(self.path.partition('?')[0], body, client)
        except ClientGone:
            self.close_connection = True
        except (Refused, Unusable) as error:
            self._send_text(error.status, str(error))
        except Unknown as error:
            self._send_text(404, str(error))
        except OSError:
            self.close_connection = True
            if not client.has_begun:
                raise

    def _get(self, path, _body, _client):
        if path == '/health':
            self._send_json('OK')
        elif path == '/contexts':
            self._send_json(self._contexts.views())
        else:
            raise Refused(404, 'no such path: GET %s' % path)

    def _post(self, path, body, client):
        of_context = _OF_CONTEXT.match(path)
        if path == '/execute':
            self._execute(_fields(body), client)
        elif path == '/contexts':
            fields = _fields(body)
            context = self._contexts.create(_text(fields, 'language'), _text(fields, 'cwd'))
            self._send_json(context.view())
        elif of_context is not None and of_context.group(2):
            self._contexts.find(of_context.group(1)).restart()
            self._send_json(None)
        else:
            raise Refused(404, 'no such path: POST %s' % path)

    def _delete(self, path, _body, _client):
        of_context = _OF_CONTEXT.match(path)
        if of_context is None or of_context.group(2):
            raise Refused(404, 'no such path: DELETE %s' % path)
        self._contexts.remove(of_context.group(1))
        self._send_json(None)

    def _execute(self, fields, client):
        code, env = fields.get('code'), fields.get('env_vars') or {}
        context_id, language = _text(fields, 'context_id'), _text(fields, 'language')
        if not isinstance(code, str):
            raise Refused(400, 'code must be a string')
        if not isinstance(env, dict) or not all(_is_variable(name, value) for name, value in env.items()):
            raise Refused(400, 'env_vars must be an object of strings')
        if context_id and language:
            raise Refused(400, 'give either context_id or language, not both')
        context = self._contexts.find(context_id) if context_id else self._contexts.default(language)
        context.execute(code, env, client)
        client.finish()

    @property
    def _contexts(self):
        return self.server.contexts

    def _read_body(self):
        if 'chunked' in self.headers.get('Transfer-Encoding', '').lower():
            return self._read_chunks()
        try:
            length = int(self.headers.get('Content-Length', '0'))
        except ValueError:
            length = -1
        self._check_length(length)
        body = self.rfile.read(length)
        if len(body) < length:
            raise ClientGone()
        return body

    def _read_chunks(self):
        chunks, total = [], 0
        while True:
            try:
                size = int(self.rfile.readline(256).partition(b';')[0], 16)
            except ValueError:
                size = -1
            total += max(size, 0)
            self._check_length(-1 if size < 0 else total)
            if size == 0:
                break
            chunks.append(self.rfile.read(size))
            self.rfile.readline(256)
        while self.rfile.readline(65536) not in (b'\r\n', b'\n', b''):
            pass
        return b''.join(chunks)

    def _check_length(self, length):
        if 0 <= length <= MOST_BODY_BYTES:
            return
        self.close_connection = True
        if length < 0:
            raise Refused(400, 'the length of the body is not valid')
        raise Refused(413, 'the body has more than %d bytes' % MOST_BODY_BYTES)

    def _send_json(self, value):
        self._send(200, 'application/json', json.dumps(value).encode())

    def _send_text(self, status, text):
        self._send(status, 'text/plain; charset=utf-8', text.encode('utf-8', 'replace'))

    def _send(self, status, kind, body):
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        if self.close_connection:
            self.send_header('Connection', 'close')
        self.end_headers()
        self.wfile.write(body)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """The listening server: a thread for each connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address, contexts):
        self.contexts = contexts
        http.server.HTTPServer.__init__(self, address, Handler)

    def server_bind(self):
        """Binds without the look-up of a host name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def handle_error(self, request, client_address):
        """Keeps quiet about connections that broke."""
        if not isinstance(sys.exc_info()[1], OSError):
            http.server.HTTPServer.handle_error(self, request, client_address)


def _fields(body):
    try:
        fields = json.loads(body.decode('utf-8')) if body.strip() else {}
    except ValueError as error:
        raise Refused(400, 'the body is no JSON: %s' % error)
    if not isinstance(fields, dict):
        raise Refused(400, 'the body must be a JSON object')
    return fields


def _text(fields, name):
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise Refused(400, '%s must be a string' % name)
    return value


def _is_variable(name, value):
    if not isinstance(value, str) or name == '' or '=' in name or '\0' in name + value:
        return False
    try:
        os.fsencode(name + value)
    except UnicodeEncodeError:
        return False
    return True


def _commands(ours):
    """Returns the commands of the kernels that this sandbox can run, by language."""
    commands = collections.OrderedDict(python=[sys.executable, '-c', BOOT, ours])
    node = shutil.which('node')
    if node is not None:
        script = os.path.join(ours, 'rookery_interpreter', 'kernel.cjs')
        commands['javascript'] = [node, script]
        commands['typescript'] = [node, '--disable-warning=ExperimentalWarning', script, '--typescript']
    return commands


def main(argv=None):
    """Serves until the process is ended. Prints the port when it listens."""
    parser = argparse.ArgumentParser(prog='rookery_interpreter', description=__doc__)
    parser.add_argument('--host', default='0.0.0.0')
    parser.add_argument('--port', type=int, default=PORT)
    parser.add_argument('--directory', default=os.environ.get('HOME') or '/', help='where cells run')
    options = parser.parse_args(argv)
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    server = Server((options.host, options.port), Contexts(options.directory, _commands(ours), ALIASES))
    print(server.server_port, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
