"""Tests the start of the runtime in a container: `image.py` by its path, with its orders in a file."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import client
from rookery_runtime import image, protocol

STARTER = os.path.abspath(image.__file__)
VERSION = '%d.%d' % sys.version_info[:2]
TELL = 'import os, sys\ndef tell(event, context):\n    return [sys.path, sorted(os.environ), sys.modules["rookery_runtime"].__file__]\n'


class ImageTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix='rookery-test-')
        self.addCleanup(shutil.rmtree, self.directory)
        self.socket = os.path.join(self.directory, 'runtime.sock')
        self.orders = os.path.join(self.directory, 'orders.json')

    def start(self, environment=None, **changes):
        orders = {'secret': client.SECRET, 'socket': self.socket, 'version': VERSION, 'mode': 'python', 'argv': [], 'unset': []}
        orders.update(changes)
        with open(self.orders, 'w') as file:
            json.dump(orders, file)
        # The tests find the runtime through a variable that no container has.
        outside = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}
        process = subprocess.Popen(
            [sys.executable, STARTER, self.orders], env=dict(outside, **environment or {}), cwd=self.directory,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as file:
            file.write(text)
        return path

    def connect(self, process):
        """Returns a connection that has sent HELLO and received HELLO_OK."""
        client.wait_until(lambda: os.path.exists(self.socket) or process.poll() is not None)
        self.assertIsNone(process.poll(), 'it has ended')
        # The socket at the path already listens.
        connection = client.Connection(self.socket)
        self.addCleanup(connection.close)
        hello = {'version': protocol.VERSION, 'secret': client.SECRET, 'client': 'c', 'role': 'data'}
        connection.send(protocol.HELLO, 0, hello)
        self.assertEqual(connection.receive().kind, protocol.HELLO_OK)
        return connection

    def test_serves_and_removes_the_orders(self):
        self.connect(self.start())
        self.assertEqual(os.listdir(self.directory), ['runtime.sock'])

    def test_hides_its_path_and_the_daemons_variables_from_the_code(self):
        self.write('code/main.py', TELL)
        process = self.start({'HOSTNAME': 'box', 'KEPT': 'yes'}, unset=['HOSTNAME', 'NOT_THERE'])
        connection = self.connect(process)
        connection.send(protocol.INIT, 0, client.init_message(os.path.join(self.directory, 'code'), 'main.tell'))
        self.assertEqual(connection.receive().kind, protocol.INIT_OK)
        path, names, module = connection.call({}).value
        self.assertEqual([entry for entry in path if entry and STARTER.startswith(entry)], [])
        self.assertNotIn('HOSTNAME', names)
        self.assertIn('KEPT', names)
        self.assertEqual(os.path.dirname(module), os.path.dirname(STARTER))

    def test_prefers_a_runtime_of_the_image(self):
        own = 'def serve(listener, secret):\n    print("own", secret)\n'
        self.write('own/rookery_runtime/__init__.py', own)
        self.write('own/rookery_runtime/protocol.py', 'VERSION = %d\n' % protocol.VERSION)
        process = self.start({'PYTHONPATH': os.path.join(self.directory, 'own')})
        self.assertEqual(process.stdout.read().decode(), 'own %s\n' % client.SECRET)

    def test_refuses_a_broken_runtime_and_a_runtime_of_another_protocol(self):
        for text in ('VERSION = 0\n', 'VERSION = \n', 'raise RuntimeError\n'):
            self.write('own/rookery_runtime/__init__.py', '')
            self.write('own/rookery_runtime/protocol.py', text)
            process = self.start({'PYTHONPATH': os.path.join(self.directory, 'own')})
            self.connect(process)
            process.kill()
            process.wait()
            os.unlink(self.socket)

    def test_the_exit_code_names_another_version_and_keeps_the_orders_for_the_next(self):
        self.assertEqual(self.start(version='3.1').wait(client.TIMEOUT_SECONDS), 79)
        self.assertTrue(os.path.exists(self.orders))

    def test_accepts_any_version_when_the_request_names_no_version(self):
        self.connect(self.start(version=None))

    def test_the_exit_code_tells_a_missing_program_from_a_file_that_cannot_run(self):
        for program in (os.path.join(self.directory, 'missing'), self.write('code/plain', 'x')):
            for mode in ('program', 'http'):
                self.assertEqual(self.start(mode=mode, argv=[program]).wait(client.TIMEOUT_SECONDS), 80)


if __name__ == '__main__':
    unittest.main()
