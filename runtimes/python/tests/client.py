"""A small control plane: starts a runtime in a separate process and speaks the protocol with it."""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from rookery_runtime import protocol  # noqa: E402

SECRET = 'a secret of the test'
#: Time limit of every wait, so that a fault fails a test instead of hanging it.
TIMEOUT_SECONDS = 30


def wait_until(condition):
    """Waits until `condition()` is true and returns its value."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError('not within %d s' % TIMEOUT_SECONDS)
        time.sleep(0.001)


class RuntimeProcess(object):
    """A runtime with these files as its code: `with RuntimeProcess({'main.py': '...'}) as runtime`."""

    def __init__(self, files=None, environment=None):
        self.directory = tempfile.mkdtemp(prefix='rookery-test-')
        self.code_path = os.path.join(self.directory, 'code')
        os.mkdir(self.code_path)
        self.path = os.path.join(self.directory, 'runtime.sock')
        for name, text in (files or {}).items():
            self.write(name, text)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen(16)
        listener.set_inheritable(True)
        self._log_path = os.path.join(self.directory, 'log')
        variables = dict(os.environ, ROOKERY_RUNTIME_SECRET=SECRET, PYTHONPATH=os.path.dirname(HERE))
        variables.update(environment or {})
        with open(self._log_path, 'wb') as log:
            self.process = subprocess.Popen(
                [sys.executable, '-m', 'rookery_runtime', '--fd', str(listener.fileno())],
                pass_fds=[listener.fileno()], env=variables, cwd=self.directory, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT)
        listener.close()
        self._connections = []

    def write(self, name, text):
        path = os.path.join(self.code_path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as file:
            file.write(textwrap.dedent(text))

    def wait_for(self, name):
        """Waits until the code has written this file."""
        wait_until(lambda: os.path.exists(os.path.join(self.code_path, name)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in self._connections:
            connection.close()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory)

    def log(self):
        with open(self._log_path, 'rb') as file:
            return file.read().decode('utf-8', 'replace')

    def connect(self, role='data', client=None, secret=SECRET, version=1, spans=1):
        connection = Connection(self.path)
        self._connections.append(connection)
        connection.client = client or str(uuid.uuid4())
        connection.send(protocol.HELLO, 0, {
            'version': version, 'secret': secret, 'client': connection.client, 'role': role, 'spans': spans})
        connection.hello = connection.receive()
        return connection

    def open(self):
        """Opens a data and a control connection."""
        data = self.connect('data')
        return data, self.connect('control', data.client)

    def init(self, handler='main.handler', connection=None, **fields):
        """Opens and initializes. Returns the data and the control connection; the answer is `data.init`."""
        data, control = self.open() if connection is None else (connection, None)
        data.send(protocol.INIT, 0, init_message(self.code_path, handler, **fields))
        data.init = data.receive()
        return data, control

    def wait(self):
        return self.process.wait(TIMEOUT_SECONDS)


def init_message(code_path, handler, **fields):
    message = {
        'codePath': code_path, 'handler': handler, 'initializer': '', 'preStop': '', 'initTimeoutMs': 10000,
        'concurrency': 1, 'maxResultBytes': 6 * 1024 * 1024, 'instanceId': 'i-1', 'tenant': 'default',
        'namespace': 'ns', 'name': 'agent', 'functionName': '0@shop@order', 'version': '$latest',
        'memoryMb': 256, 'cpuMillis': 500,
    }
    message.update(fields)
    return message


class Frame(object):
    def __init__(self, kind, call_id, payload):
        self.kind = kind
        self.call_id = call_id
        self.payload = payload

    @property
    def json(self):
        return json.loads(self.payload.decode('utf-8'))

    @property
    def value(self):
        """The value of a RESULT. Fails with the frame for any other kind."""
        if self.kind != protocol.RESULT:
            raise AssertionError('not a RESULT: %r' % self)
        return json.loads(self.payload[4:].decode('utf-8'))

    @property
    def error(self):
        if self.kind != protocol.ERROR:
            raise AssertionError('not an ERROR: %r' % self)
        return self.json['code'], self.json['message']

    def __repr__(self):
        return 'frame %d of call %d: %r' % (self.kind, self.call_id, bytes(self.payload[:300]))


class Connection(object):
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT_SECONDS)
        self.socket.connect(path)
        self._next_id = 0

    def send(self, kind, call_id, payload=b''):
        if isinstance(payload, dict):
            payload = json.dumps(payload).encode('utf-8')
        self.socket.sendall(protocol.frame(kind, call_id, payload))

    def start(self, event=None, body=None, **header):
        """Sends a CALL and returns its id."""
        self._next_id += 1
        fields = {'traceId': 't-1', 'traceparent': '00-' + '1' * 32 + '-' + '2' * 16 + '-01', 'requestId': 'r-1',
                  'remainingMs': 60000}
        fields.update(header)
        head = json.dumps(fields).encode('utf-8')
        body = json.dumps(event).encode('utf-8') if body is None else body
        self.send(protocol.CALL, self._next_id, bytes([len(head) >> 8, len(head) & 255]) + head + body)
        return self._next_id

    def call(self, event=None, body=None, **header):
        call_id = self.start(event, body, **header)
        frame = self.receive()
        if frame.call_id != call_id:
            raise AssertionError('an answer of another call: %r' % frame)
        return frame

    def wait_for_running(self, count):
        """Waits, on a control connection, until at least `count` calls run. Returns their number."""
        def running():
            self.send(protocol.PING, 0)
            there = self.receive().json['running']
            return there if there >= count else None
        return wait_until(running)

    def receive(self):
        length, kind, call_id = protocol.read_header(self._exactly(protocol.HEADER_BYTES), 0)
        return Frame(kind, call_id, self._exactly(length - 5))

    def at_end(self):
        """Returns True if the other side has closed."""
        try:
            return self.socket.recv(1) == b''
        except ConnectionResetError:
            return True

    def _exactly(self, count):
        data = bytearray()
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                raise EOFError('the runtime closed the connection')
            data += chunk
        return data

    def close(self):
        self.socket.close()
