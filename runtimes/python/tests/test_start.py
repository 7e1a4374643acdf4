"""
Tests a runtime that knows the INIT from its start: which thread serves while the code loads, and afterwards.
"""
import os
import re
import select
import shutil
import signal
import socket
import tempfile
import textwrap
import time
import unittest

from client import SECRET, Connection, RuntimeProcess, init_message, wait_until
import rookery_runtime
from rookery_runtime import protocol

#: Code that finishes loading when the test has opened the pipe `gate`.
BLOCKED = '''
    import os
    os.mkfifo(__file__ + '.begun')
    with open(os.path.join(os.path.dirname(__file__), 'gate')) as gate:
        gate.read()
    def handler(event, context):
        return event
'''


class Start(unittest.TestCase):
    def start(self, code, **fields):
        self.directory = tempfile.mkdtemp(prefix='rookery-test-')
        self.addCleanup(shutil.rmtree, self.directory)
        with open(os.path.join(self.directory, 'main.py'), 'w') as file:
            file.write(textwrap.dedent(code))
        self.gate = os.path.join(self.directory, 'gate')
        os.mkfifo(self.gate)
        self.message = init_message(self.directory, 'main.handler', **fields)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(os.path.join(self.directory, 'runtime.sock'))
            listener.listen(4)
            self.child = os.fork()
            if not self.child:
                try:
                    rookery_runtime.after_fork()
                    self.run_runtime(rookery_runtime.prepare(listener))
                finally:
                    os._exit(1)
        self.addCleanup(os.waitpid, self.child, 0)
        self.addCleanup(os.kill, self.child, signal.SIGKILL)

    def run_runtime(self, runtime):
        """Runs the runtime in the child."""
        runtime.run(SECRET, self.message)

    def say_hello(self, role, *frames):
        """Sends HELLO and these frames in one write."""
        connection = Connection(os.path.join(self.directory, 'runtime.sock'))
        self.addCleanup(connection.close)
        hello = protocol.json_frame(
            protocol.HELLO, 0, {'version': 1, 'secret': SECRET, 'client': 'one', 'role': role})
        connection.socket.sendall(hello + b''.join(frames))
        return connection

    def connect(self, role, *frames):
        """Returns the connection and the state in HELLO_OK."""
        connection = self.say_hello(role, *frames)
        answer = connection.receive()
        self.assertEqual(answer.kind, protocol.HELLO_OK)
        return connection, answer.json['state']

    def init(self):
        return protocol.json_frame(protocol.INIT, 0, self.message)

    def test_greeting_initialization_and_calls_in_one_write_are_answered_in_order(self):
        self.start('def handler(event, context):\n    return event\n')
        call = protocol.frame(protocol.CALL, 7, b'\0\2{}[1]')
        data, state = self.connect('data', self.init(), call)
        # On a busy machine the control thread greets before the code has loaded.
        self.assertIn(state, ('initializing', 'ready'))
        self.assertEqual(data.receive().kind, protocol.INIT_OK)
        self.assertEqual(data.receive().value, [1])
        control, _ = self.connect('control')
        control.send(protocol.PING, 0)
        self.assertEqual(control.receive().kind, protocol.PONG)

    def test_the_answer_to_init_contains_the_start_time_of_loading(self):
        before = time.monotonic()
        self.start('def handler(event, context):\n    return event\n')
        data, _ = self.connect('data', self.init())
        timing = data.receive().json
        self.assertTrue(before <= timing['beganMicros'] / 1e6 + 1e-6)
        self.assertTrue(timing['beganMicros'] + timing['loadMicros'] <= time.monotonic() * 1e6)

    def test_both_connections_are_served_while_the_code_loads(self):
        self.start(BLOCKED)
        data, state = self.connect('data', self.init())
        self.assertEqual(state, 'initializing')
        control, _ = self.connect('control')
        control.send(protocol.PING, 0)
        self.assertEqual(control.receive().kind, protocol.PONG)
        open(self.gate, 'w').close()
        self.assertEqual(data.receive().kind, protocol.INIT_OK)
        self.assertEqual(data.call(1).value, 1)

    def test_code_that_does_not_load_fails_at_its_deadline(self):
        self.start(BLOCKED, initTimeoutMs=1)
        data, _ = self.connect('data', self.init())
        self.assertEqual(data.receive().error, (4001, 'cannot load the handler main.handler: it did not load within 0.001 s'))

    def test_a_runtime_stops_with_0_before_the_first_connection(self):
        self.start('import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\ndef handler(event, context):\n    pass\n')
        ended = wait_until(lambda: os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT))
        self.assertEqual((ended.si_code, ended.si_status), (os.CLD_EXITED, 0))

    def test_a_wrong_secret_is_refused_and_the_runtime_continues(self):
        self.start('def handler(event, context):\n    return event\n')
        stranger = Connection(os.path.join(self.directory, 'runtime.sock'))
        self.addCleanup(stranger.close)
        stranger.send(protocol.HELLO, 0, {'version': 1, 'secret': 'guessed', 'client': 'two', 'role': 'data'})
        self.assertEqual(stranger.receive().error, (4000, 'wrong secret'))
        self.assertTrue(stranger.at_end())
        data, _ = self.connect('data', self.init())
        self.assertEqual(data.receive().kind, protocol.INIT_OK)


class EarlyThread(Start):
    """Repeats the tests with a control thread that starts before the secret is known."""

    def run_runtime(self, runtime):
        runtime.arm()
        runtime.control.start()
        super(EarlyThread, self).run_runtime(runtime)


class WaitingThread(Start):
    """Repeats the tests with a control thread that waits longer for the secret than for loading code."""

    def setUp(self):
        self.go_in, self.go_out = os.pipe()
        self.addCleanup(os.close, self.go_in)
        self.addCleanup(os.close, self.go_out)

    def run_runtime(self, runtime):
        runtime.arm()
        runtime.control.start()
        os.read(self.go_in, 1)
        super(WaitingThread, self).run_runtime(runtime)

    def start(self, code, **fields):
        super(WaitingThread, self).start(code, **fields)
        wait_until(lambda: self.waits() > 5)
        early = self.say_hello('data')
        self.assertEqual(select.select([early.socket], [], [], 0)[0], [])
        before = self.waits()
        wait_until(lambda: self.waits() > before + 1)
        self.assertEqual(select.select([early.socket], [], [], 0)[0], [])
        early.close()
        os.write(self.go_out, b'g')

    def waits(self):
        """Returns how often the second thread has slept."""
        threads = sorted(os.listdir('/proc/%d/task' % self.child), key=int)
        if len(threads) < 2:
            return 0
        with open('/proc/%d/task/%s/status' % (self.child, threads[1])) as status:
            return int(re.search(r'^voluntary_ctxt_switches:\s*(\d+)', status.read(), re.M).group(1))


class Code(unittest.TestCase):
    def test_other_modules_import_the_same_module_object_as_the_handler(self):
        files = {
            'main.py': 'import other\ndef handler(event, context):\n    import sys\n    return [other.main is sys.modules["main"], __file__, '
                       '__name__, __spec__.name, other.main.handler is handler]\n',
            'other.py': 'import main\n',
        }
        with RuntimeProcess(files) as runtime:
            data, _ = runtime.init()
            path = os.path.join(runtime.code_path, 'main.py')
            self.assertEqual(data.call().value, [True, path, 'main', 'main', True])

    def test_the_code_has_all_threads_of_the_instance(self):
        code = 'import threading\ndef handler(event, context):\n    return [one.name for one in threading.enumerate()]\n'
        with RuntimeProcess({'main.py': code}) as runtime:
            data, _ = runtime.init()
            self.assertEqual(data.call().value, ['MainThread'])


class Prepared(unittest.TestCase):
    def test_a_discarded_runtime_leaves_the_listener_unchanged(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            before = os.listdir('/proc/self/fd')
            rookery_runtime.prepare(listener).discard()
            self.assertEqual(os.listdir('/proc/self/fd'), before)
            self.assertTrue(os.get_blocking(listener.fileno()))


if __name__ == '__main__':
    unittest.main()
