"""Locks of zygotes, and what those that are no more have left."""
import os
import shutil
import tempfile
import unittest

from rookery_zygote import lockfile

HOUR = 3600


class Locks(unittest.TestCase):
    def setUp(self):
        self.run_dir = tempfile.mkdtemp(prefix='rookery-locks-')
        self.addCleanup(shutil.rmtree, self.run_dir)

    def names(self):
        return sorted(os.listdir(self.run_dir))

    def leave(self, name, text='', hours=1):
        path = os.path.join(self.run_dir, name)
        with open(path, 'w') as file:
            file.write(text)
        then = os.stat(path).st_mtime - hours * HOUR
        os.utime(path, (then, then))

    def lock(self, name):
        lock = lockfile.LockFile(self.run_dir, name)
        self.assertTrue(lock.take())
        self.addCleanup(os.close, lock._descriptor)
        return lock

    def test_a_lock_is_held_by_one(self):
        self.lock('py3.11-a')
        self.assertFalse(lockfile.LockFile(self.run_dir, 'py3.11-a').take())
        self.lock('py3.12-a')

    def test_a_lock_that_its_holder_removed_can_be_taken_while_the_holder_still_lives(self):
        first = self.lock('py3.11-a')
        first.remove()
        self.assertEqual(self.names(), [])
        self.lock('py3.11-a')
        self.assertEqual(self.names(), ['py3.11-a.lock'])

    def test_a_holder_that_ends_leaves_its_log_only_when_it_says_something(self):
        self.leave('py3.11-a.log')
        self.leave('py3.12-a.log', 'words')
        for name in ('py3.11-a', 'py3.12-a'):
            self.lock(name).remove()
        self.assertEqual(self.names(), ['py3.12-a.log'])

    def test_a_file_that_nobody_holds_is_swept(self):
        for ending in ('.lock', '.log', '.control.sock', '.start.sock'):
            self.leave('py3.11-old' + ending)
        self.leave('py3.11-without-log.lock')
        self.leave('py3.11-without-lock.log')
        lockfile.sweep(self.run_dir)
        self.assertEqual(self.names(), [])

    def test_a_file_that_somebody_holds_stays(self):
        self.lock('py3.11-a')
        for ending in ('.log', '.control.sock', '.start.sock'):
            self.leave('py3.11-a' + ending)
        before = self.names()
        lockfile.sweep(self.run_dir)
        self.assertEqual(self.names(), before)

    def test_a_log_that_says_something_stays_for_a_day_with_its_lock(self):
        for name, hours in (('py3.11-a', 23), ('py3.11-b', 25)):
            self.leave(name + '.lock', '', hours)
            self.leave(name + '.log', 'words', hours)
        lockfile.sweep(self.run_dir)
        self.assertEqual(self.names(), ['py3.11-a.lock', 'py3.11-a.log'])

    def test_one_that_is_just_beginning_keeps_its_log(self):
        self.leave('py3.11-a.log', '', 0)
        self.leave('py3.11-b.lock')
        self.leave('py3.11-b.log', '', 0)
        lockfile.sweep(self.run_dir)
        self.assertEqual(self.names(), ['py3.11-a.log', 'py3.11-b.lock', 'py3.11-b.log'])

    def test_other_files_are_not_looked_at(self):
        for name in ('docker', 'other.lock', 'py3.11-a.txt'):
            self.leave(name)
        os.symlink('/etc/passwd', os.path.join(self.run_dir, 'py3.11-link.lock'))
        lockfile.sweep(self.run_dir)
        self.assertEqual(self.names(), ['docker', 'other.lock', 'py3.11-a.txt', 'py3.11-link.lock'])


if __name__ == '__main__':
    unittest.main()
