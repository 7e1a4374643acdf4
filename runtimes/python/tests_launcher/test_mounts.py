"""Mount sources and targets, without mounting."""
import os
import shutil
import tempfile
import unittest

from rookery_launcher import mounts
from rookery_launcher.failure import StartFailure


class Sources(unittest.TestCase):
    def test_the_rule_of_unsafe_paths(self):
        for path in ('/', '/etc', '/etc/ssl', '/proc', '/proc/1', '/sys', '/dev/shm', '/boot', '/run/docker.sock',
                     '/data', '/data/run', '/', '/run', '/srv/docker.sock.d'):
            self.assertTrue(mounts.is_unsafe(path, '/data', '/run/docker.sock'), path)
        for path in ('/etcetera', '/home/me', '/database', '/srv', '/run/user'):
            self.assertFalse(mounts.is_unsafe(path, '/data', '/run/docker.sock'), path)

    def test_a_parent_of_the_data_directory_is_unsafe(self):
        self.assertTrue(mounts.is_unsafe('/var', '/var/lib/rookery', '/run/docker.sock'))

    def test_the_resolved_path_counts(self):
        directory = tempfile.mkdtemp(prefix='rookery-mounts-')
        self.addCleanup(shutil.rmtree, directory)
        link = os.path.join(directory, 'link')
        os.symlink('/etc', link)
        with self.assertRaises(StartFailure) as caught:
            mounts.open_source(link, '/data', '/run/docker.sock')
        self.assertEqual(caught.exception.message, 'unsafe mount source: %s' % link)
        os.close(mounts.open_source(directory, '/data', '/run/docker.sock'))

    def test_missing_and_relative_sources_are_told(self):
        for path, message in (
            ('/no/such/path', 'mount source does not exist: /no/such/path'),
            ('relative', 'mount source must be an absolute path: relative'),
        ):
            with self.assertRaises(StartFailure) as caught:
                mounts.open_source(path, '/data', '/run/docker.sock')
            self.assertEqual(caught.exception.message, message)


class NeededDirectories(unittest.TestCase):
    NEEDED = ('/dev', '/opt/python', '/proc', '/usr', '/usr/bin')

    def refusal(self, resolved):
        try:
            mounts.check_target(resolved, 'TARGET', self.NEEDED)
        except StartFailure as failure:
            return failure.message
        return None

    def test_nothing_may_be_mounted_over_what_the_sandbox_needs(self):
        for resolved, hidden in (('/usr', '/usr'), ('/usr/bin', '/usr/bin'), ('/opt', '/opt/python')):
            self.assertEqual(self.refusal(resolved), 'mount target TARGET hides %s, which the sandbox needs' % hidden)

    def test_nothing_may_be_mounted_in_proc_and_dev_but_on_shared_memory(self):
        for resolved, tree in (('/proc/self', '/proc'), ('/dev/null', '/dev'), ('/dev/pts', '/dev')):
            self.assertEqual(self.refusal(resolved), 'mount target TARGET is in %s, which the sandbox needs' % tree)
        self.assertIsNone(self.refusal('/dev/shm'))
        self.assertIsNone(self.refusal('/dev/shm/of-two'))

    def test_beside_and_below_it_mounts_are_free(self):
        for resolved in ('/data', '/etc', '/opt/python/data', '/opt/pythons', '/usr/share/data', '/processes'):
            self.assertIsNone(self.refusal(resolved), resolved)


class Targets(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix='rookery-targets-')
        self.addCleanup(shutil.rmtree, self.root)

    def resolve(self, target, wants_directory=True):
        descriptor = mounts.open_target(self.root, target, wants_directory)
        try:
            return os.readlink('/proc/self/fd/%d' % descriptor)
        finally:
            os.close(descriptor)

    def test_missing_directories_are_made(self):
        self.assertEqual(self.resolve('/a/b/c'), self.root + '/a/b/c')
        self.assertEqual(self.resolve('/a/b/c'), self.root + '/a/b/c')

    def test_a_file_is_made_for_a_file(self):
        self.assertEqual(self.resolve('/a/file', False), self.root + '/a/file')
        self.assertTrue(os.path.isfile(self.root + '/a/file'))
        with self.assertRaises(OSError):
            self.resolve('/a/file', True)
        with self.assertRaises(OSError):
            self.resolve('/a', False)

    def test_links_are_followed_as_if_the_root_were_the_root(self):
        os.symlink('/etc', self.root + '/absolute')
        self.assertEqual(self.resolve('/absolute/x'), self.root + '/etc/x')
        os.makedirs(self.root + '/deep/er')
        os.symlink('../../../../../../etc', self.root + '/deep/er/up')
        self.assertEqual(self.resolve('/deep/er/up/y'), self.root + '/etc/y')
        os.symlink('er', self.root + '/deep/same')
        self.assertEqual(self.resolve('/deep/same/z'), self.root + '/deep/er/z')

    def test_a_ring_of_links_is_an_error(self):
        os.symlink('/two', self.root + '/one')
        os.symlink('/one', self.root + '/two')
        with self.assertRaises(OSError):
            self.resolve('/one/x')

    def test_targets_are_paths_below_the_root(self):
        self.assertEqual(mounts.normalize_target('a//b/../c/'), '/a/c')
        self.assertEqual(mounts.normalize_target('/../../x'), '/x')
        for target in ('/', '', '/..', '/a/..'):
            with self.assertRaises(StartFailure):
                mounts.normalize_target(target)
