"""Mount sources and targets, without mounting."""
import os
import shutil
import stat
import subprocess
import tempfile
import unittest

from rookery_zygote import mounts
from rookery_zygote.failure import StartFailure


POLICY = {'closed': ['/data', '/run/docker', '/run/docker.sock', '/var/lib/docker'], 'allow': None}
OUTSIDE = ' (mounts.allow does not name it)'
NO_FILE = ' (it is neither a file nor a directory)'


def refusal_of(path, policy=POLICY, mode=stat.S_IFDIR):
    return mounts.refusal_of(path, mode, policy)


class Sources(unittest.TestCase):
    def setUp(self):
        self.directory = os.path.realpath(tempfile.mkdtemp(prefix='rookery-mounts-'))
        self.addCleanup(shutil.rmtree, self.directory)

    def refused(self, path, policy=POLICY):
        with self.assertRaises(StartFailure) as caught:
            mounts.open_source(path, policy)
        return caught.exception.message

    def test_the_rule_of_unsafe_paths(self):
        for path in ('/', '/etc', '/etc/ssl', '/proc', '/proc/1', '/sys', '/dev/shm', '/boot', '/run/docker.sock',
                     '/data', '/data/run', '/', '/run', '/srv/docker.sock.d', '/run/docker/x', '/var/lib/docker',
                     '/var/lib', '/var', '/mnt/.docker/config.json', '/mnt/.local/share/containers/storage'):
            self.assertEqual(refusal_of(path), '', path)
            self.assertEqual(refusal_of(path, dict(POLICY, allow=['/'])), '', path)
        for path in ('/etcetera', '/home/me', '/database', '/srv', '/run/user', '/var/lib/dockers', '/mnt/.dockers'):
            self.assertIsNone(refusal_of(path), path)

    def test_a_parent_of_the_data_directory_is_unsafe(self):
        self.assertEqual(refusal_of('/srv', {'closed': ['/srv/rookery'], 'allow': None}), '')

    def test_what_is_not_allowed_is_refused_by_whole_names(self):
        policy = dict(POLICY, allow=['/srv/code', '/mnt'])
        for path in ('/srv/code', '/srv/code/x', '/mnt/disk'):
            self.assertIsNone(refusal_of(path, policy), path)
        for path in ('/srv', '/srv/codex', '/home/me', '/mnt2'):
            self.assertEqual(refusal_of(path, policy), OUTSIDE, path)
        self.assertEqual(refusal_of('/srv/code', dict(POLICY, allow=[])), OUTSIDE)
        self.assertIsNone(refusal_of('/srv/code', dict(POLICY, allow=['/'])))

    def test_only_files_and_directories_are_mounted(self):
        for mode in (stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFLNK):
            self.assertEqual(refusal_of('/srv/x', POLICY, mode), NO_FILE)
        self.assertIsNone(refusal_of('/srv/x', POLICY, stat.S_IFREG))

    def test_the_resolved_path_counts(self):
        link = os.path.join(self.directory, 'link')
        os.symlink('/etc', link)
        self.assertEqual(self.refused(link), 'unsafe mount source: %s' % link)
        os.close(mounts.open_source(self.directory, POLICY))
        inside = dict(POLICY, allow=[os.path.join(self.directory, 'allowed')])
        os.mkdir(os.path.join(self.directory, 'allowed'))
        os.symlink('..', os.path.join(self.directory, 'allowed', 'up'))
        up = os.path.join(self.directory, 'allowed', 'up')
        self.assertEqual(self.refused(up, inside), 'unsafe mount source: %s%s' % (up, OUTSIDE))

    def test_a_pipe_holds_nothing_up(self):
        pipe = os.path.join(self.directory, 'pipe')
        os.mkfifo(pipe)
        self.assertEqual(self.refused(pipe), 'unsafe mount source: %s%s' % (pipe, NO_FILE))

    def test_what_was_removed_is_not_mounted(self):
        gone = os.path.join(self.directory, 'gone')
        os.mkdir(gone)
        held = os.open(gone, os.O_PATH)
        self.addCleanup(os.close, held)
        os.rmdir(gone)
        path = '/proc/self/fd/%d' % held
        self.assertEqual(self.refused(path), 'unsafe mount source: %s' % path)

    @unittest.skipUnless(os.geteuid() == 0, 'needs root')
    def test_what_a_link_reaches_in_another_mount_namespace_is_not_taken_for_what_is_here(self):
        shown = os.path.join(self.directory, 'shown')
        os.mkdir(shown)
        script = 'mount -t tmpfs none %s && echo ready && exec sleep 600' % shown
        other = subprocess.Popen(['unshare', '--mount', 'sh', '-c', script], stdout=subprocess.PIPE)
        try:
            if not other.stdout.readline():
                self.skipTest('this machine forbids namespaces')
            link = os.path.join(self.directory, 'link')
            os.symlink('/proc/%d/root%s' % (other.pid, shown), link)
            self.assertEqual(self.refused(link), 'unsafe mount source: %s' % link)
        finally:
            other.kill()
            other.wait()
            other.stdout.close()

    def test_missing_and_relative_sources_are_told(self):
        for path, message in (
            ('/no/such/path', 'mount source does not exist: /no/such/path'),
            ('relative', 'mount source must be an absolute path: relative'),
        ):
            with self.assertRaises(StartFailure) as caught:
                mounts.open_source(path, POLICY)
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
