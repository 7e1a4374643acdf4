"""Tests sockets below directories whose paths exceed the kernel's limit for socket paths."""
import os
import shutil
import socket
import tempfile
import unittest

from rookery_runtime import program_bridge, unix_path
from rookery_runtime import __main__ as program


class LongPaths(unittest.TestCase):
    def setUp(self):
        base = tempfile.mkdtemp(prefix='rookery-long-')
        self.addCleanup(shutil.rmtree, base)
        self.directory = os.path.join(base, 'x' * 120)
        os.mkdir(self.directory)

    def test_a_socket_listens_at_a_path_of_any_length(self):
        for name, listen in (
                ('plain', lambda path: unix_path.listen(path, 1)),
                ('program', program_bridge._listen),
                ('runtime', program._listen_unix)):
            path = os.path.join(self.directory, name)
            listener = listen(path)
            self.addCleanup(listener.close)
            caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.addCleanup(caller.close)
            with unix_path.short(path) as place:
                caller.connect(place)

    def test_a_path_without_a_directory_is_in_the_working_directory(self):
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.directory)
        self.addCleanup(unix_path.listen('here', 1).close)
        self.assertTrue(os.path.exists(os.path.join(self.directory, 'here')))

    def test_a_directory_that_is_not_there_is_an_error_and_leaves_no_descriptor(self):
        before = len(os.listdir('/proc/self/fd'))
        with self.assertRaises(OSError):
            unix_path.listen(os.path.join(self.directory, 'no', 'socket'), 1)
        self.assertLessEqual(len(os.listdir('/proc/self/fd')), before)


if __name__ == '__main__':
    unittest.main()
