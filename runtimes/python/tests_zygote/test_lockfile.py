"""Tests locks of zygotes, and the removal of residue of ended zygotes."""
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

    def test_a_lock_has_one_holder(self):
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

    def test_a_file_without_a_holder_is_swept(self):
        for ending in ('.lock', '.log', '.control.sock', '.start.sock'):
            self.leave('py3.11-old' + ending)
        self.leave('py3.11-without-log.lock')
        self.leave('py3.11-without-lock.log')
        lockfile.sweep(self.run_dir)
        self.assertEqual(self.names(), [])

    def test_a_file_with_a_holder_stays(self):
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

    def test_a_starting_zygote_keeps_its_log(self):
        self.leave('py3.11-a.log', '', 0)
        self.leave('py3.11-b.lock')
        self.leave('py3.11-b.log', '', 0)
        lockfile.sweep(self.run_dir)
        self.assertEqual(self.names(), ['py3.11-a.log', 'py3.11-b.lock', 'py3.11-b.log'])

    def test_other_files_are_ignored(self):
        for name in ('docker', 'other.lock', 'py3.11-a.txt'):
            self.leave(name)
        os.symlink('/etc/passwd', os.path.join(self.run_dir, 'py3.11-link.lock'))
        self.leave_template('py3.11-link')
        # The template of the programs of supervisord.
        os.mkdir(os.path.join(self.run_dir, 'etc'))
        lockfile.sweep(self.run_dir)
        self.assertEqual(self.names(), ['docker', 'etc', 'etc-py3.11-link', 'other.lock', 'py3.11-a.txt', 'py3.11-link.lock'])

    def test_files_of_zygotes_of_programs_are_swept_too(self):
        for ending in ('.lock', '.log', '.control.sock', '.start.sock', '.start-own.sock', '.start-none.sock'):
            self.leave('program3.12-old' + ending)
        self.lock('program3.12-a')
        lockfile.sweep(self.run_dir)
        self.assertEqual(self.names(), ['program3.12-a.lock'])

    def leave_template(self, zygote):
        path = os.path.join(self.run_dir, 'etc-' + zygote)
        os.makedirs(os.path.join(path, 'ssl'))
        with open(os.path.join(path, 'hosts'), 'w') as file:
            file.write('127.0.0.1 localhost')

    def make_sandbox(self, directory, name, state):
        path = os.path.join(self.run_dir, directory, name)
        os.makedirs(path)
        if state is not None:
            with open(os.path.join(path, 'state.json'), 'w') as file:
                file.write(state)

    def sweep_with_sandboxes(self):
        directories = [os.path.join(self.run_dir, name) for name in ('spares', 'instances')]
        for directory in directories:
            if not os.path.isdir(directory):
                os.mkdir(directory)
        lockfile.sweep(self.run_dir, directories)
        return [name for name in self.names() if name not in ('spares', 'instances')]

    def test_a_template_of_etc_is_removed_with_its_zygote(self):
        for name in ('py3.11-old', 'program3.12-old', 'py3.11-without-lock', 'py3.11-words', 'py3.11-a'):
            self.leave_template(name)
        self.leave('py3.11-old.lock')
        # The log with its text stays.
        for ending, text in (('.lock', ''), ('.log', 'words')):
            self.leave('py3.11-words' + ending, text)
        self.lock('py3.11-a')
        self.assertEqual(self.sweep_with_sandboxes(), ['etc-py3.11-a', 'py3.11-a.lock', 'py3.11-words.lock', 'py3.11-words.log'])

    def test_a_template_that_a_sandbox_has_as_its_etc_stays_until_that_is_gone(self):
        for name in ('py3.11-a', 'py3.11-b', 'program3.12-c'):
            self.leave_template(name)
        self.make_sandbox('instances', 'one', '{"pid":1,"launcher":"py3.11-a"}      ')
        self.make_sandbox('spares', 'two', '{"pid":1,"launcher":"program3.12-c"}')
        self.make_sandbox('instances', 'three', None)
        self.assertEqual(self.sweep_with_sandboxes(), ['etc-program3.12-c', 'etc-py3.11-a'])
        for path in ('instances/one', 'spares/two'):
            shutil.rmtree(os.path.join(self.run_dir, path))
        self.assertEqual(self.sweep_with_sandboxes(), [])

    def test_templates_stay_while_a_sandbox_has_an_unknown_owner(self):
        self.leave_template('py3.11-a')
        self.make_sandbox('instances', 'one', '{"pid":1,"laun')
        self.assertEqual(self.sweep_with_sandboxes(), ['etc-py3.11-a'])

    def test_a_starting_zygote_keeps_its_template(self):
        self.leave_template('py3.11-a')
        self.leave('py3.11-a.log', '', 0)
        self.assertEqual(self.sweep_with_sandboxes(), ['etc-py3.11-a', 'py3.11-a.log'])


if __name__ == '__main__':
    unittest.main()
