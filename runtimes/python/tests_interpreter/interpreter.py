"""A running interpreter of a test, and a client of it."""
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Time limit of every wait, so that a fault fails a test instead of hanging it.
SECONDS = 120

#: Starts the server with shorter intervals, for which the tests wait.
STARTED_WITH = '''
from rookery_interpreter import contexts, kernel_process, server
contexts.CHECK_SECONDS = 0.05
kernel_process.GROUP_INTERRUPT_SECONDS = 0.2
kernel_process.KILL_SECONDS = %r
kernel_process.IDLE_WATCH_MS = %r or kernel_process.WATCH_MS
server.main()
'''


class Answer(object):
    """The lines of an execution."""

    def __init__(self, messages):
        self.messages = messages
        self.results = [message for message in messages if message['type'] == 'result']
        self.error = next((message for message in messages if message['type'] == 'error'), None)
        self.count = next((each['execution_count'] for each in messages if 'execution_count' in each), None)

    @property
    def text(self):
        """Text of the main result, or None."""
        return next((result['text'] for result in self.results if result['is_main_result']), None)

    def output(self, stream='stdout'):
        """All text of a stream."""
        return ''.join(message['text'] for message in self.messages if message['type'] == stream)


class WithInterpreter(unittest.TestCase):
    """Tests with one server per class, in a directory of its own."""

    #: Time after an interrupt until the process is killed.
    KILL_SECONDS = SECONDS
    #: How often the end of an idle process is noticed whose children hold its channel; 0: as in a cell.
    IDLE_WATCH_MS = 0

    @classmethod
    def setUpClass(cls):
        cls.home = os.path.realpath(tempfile.mkdtemp(prefix='rookery-test-'))
        environment = dict(os.environ, HOME=cls.home, PYTHONPATH=HERE, OF_SANDBOX='sandbox')
        cls.process = subprocess.Popen(
            [sys.executable, '-B', '-c', STARTED_WITH % (cls.KILL_SECONDS, cls.IDLE_WATCH_MS), '--host', '127.0.0.1', '--port', '0'],
            stdout=subprocess.PIPE, env=environment)
        cls.port = int(cls.process.stdout.readline())

    @classmethod
    def tearDownClass(cls):
        cls.process.terminate()
        cls.process.wait(SECONDS)
        cls.process.stdout.close()
        shutil.rmtree(cls.home, True)

    def path(self, name):
        return os.path.join(self.home, name)

    def connect(self):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=SECONDS)
        self.addCleanup(connection.close)
        return connection

    def ask(self, method, path, body=None):
        """Returns the status and the body of an answer as text."""
        connection = self.connect()
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def wait_text(self, answer, part):
        while True:
            line = answer.readline()
            self.assertNotEqual(line, b'')
            if part in line and b'execution_count' not in line:
                return

    @contextlib.contextmanager
    def started(self, code, **fields):
        """Starts a cell, and gives its answer, from which lines can be read; the end closes the connection."""
        connection = self.connect()
        connection.request('POST', '/execute', json.dumps(dict(fields, code=code)))
        answer = connection.getresponse()
        try:
            yield answer
        finally:
            answer.close()
            connection.close()

    def run_cell(self, code, **fields):
        """Runs a cell to its end."""
        with self.started(code, **fields) as answer:
            text = answer.read().decode()
        self.assertEqual(answer.status, 200, text)
        messages = [json.loads(line) for line in text.splitlines()]
        self.assertEqual(messages[-1], {'type': 'end_of_execution'})
        return Answer([message for message in messages[:-1] if message['type'] != 'keepalive'])

    def new_context(self, **fields):
        status, text = self.ask('POST', '/contexts', fields)
        self.assertEqual(status, 200, text)
        return json.loads(text)['id']
