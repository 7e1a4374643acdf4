"""Tests loading code and its bytecode, which is written and read only where that is possible."""
import importlib.util
import os
import py_compile
import shutil
import sys
import tempfile
import unittest
from unittest import mock

from rookery_runtime import entry


class Bytecode(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix='rookery-test-')
        self.addCleanup(shutil.rmtree, self.directory)
        self.addCleanup(sys.path.__setitem__, slice(None), list(sys.path))
        patched = mock.patch.object(sys, 'dont_write_bytecode', False)
        patched.start()
        self.addCleanup(patched.stop)

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as file:
            file.write(text)
        return path

    def load(self, name='main'):
        for known in [known for known in sys.modules if known.split('.')[0] == name]:
            del sys.modules[known]
        self.addCleanup(sys.modules.pop, name, None)
        entry.prepare_path(self.directory)
        return entry.load(name + '.handler', self.directory, 'handler')

    def read_only(self):
        """Simulates a read-only directory, since root may write everywhere."""
        return mock.patch.object(os, 'access', lambda path, mode: False)

    def test_bytecode_is_written_to_a_writable_directory(self):
        path = self.write('main.py', 'def handler():\n    return __file__\n')
        self.assertEqual(self.load()(), path)
        self.assertTrue(os.path.exists(importlib.util.cache_from_source(path)))

    def test_bytecode_is_not_searched_in_a_read_only_directory_without_any(self):
        path = self.write('main.py', 'def handler():\n    return __file__, __name__, __loader__.get_source("main")\n')
        with self.read_only(), mock.patch.object(importlib.machinery.SourceFileLoader, 'set_data', None):
            handler = self.load()
        with open(path) as source:
            self.assertEqual(handler(), (path, 'main', source.read()))
        self.assertEqual(os.listdir(self.directory), ['main.py'])

    def test_so_it_is_with_a_package(self):
        self.write('main/__init__.py', 'from .part import VALUE\ndef handler():\n    return VALUE, __path__\n')
        self.write('main/part.py', 'VALUE = 1\n')
        with self.read_only():
            self.assertEqual(self.load()(), (1, [os.path.join(self.directory, 'main')]))

    def test_names_that_no_import_statement_takes_are_loaded(self):
        for name, file in (('my-mod', 'my-mod.py'), ('01_x', '01_x.py'), ('src/app', 'src/app.py'), ('json/app', 'json/app.py'),
                           ('a-b.c-d', 'a-b/c-d.py'), ('2024/job-1', '2024/job-1/__init__.py')):
            with self.subTest(name):
                path = self.write(file, 'def handler():\n    return __file__\n')
                entry.prepare_path(self.directory)
                self.assertEqual(entry.load(name + '.handler', self.directory, 'handler')(), path)

    def test_existing_bytecode_is_read(self):
        path = self.write('main.py', 'def handler():\n    return 1\n')
        before = os.stat(path)
        py_compile.compile(path)
        self.write('main.py', 'def handler():\n    return 2\n')
        # Gives the changed file the time of the old one.
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with self.read_only():
            self.assertEqual(self.load()(), 1)

    @unittest.skipUnless(hasattr(sys, 'pycache_prefix'), 'this Python knows no other place for bytecode')
    def test_bytecode_may_be_in_another_directory(self):
        path = self.write('code/main.py', 'def handler():\n    return 1\n')
        self.directory, elsewhere = os.path.dirname(path), os.path.join(self.directory, 'elsewhere')
        with self.read_only(), mock.patch.object(sys, 'pycache_prefix', elsewhere):
            self.assertEqual(self.load()(), 1)
            self.assertTrue(os.path.exists(importlib.util.cache_from_source(path)))


if __name__ == '__main__':
    unittest.main()
