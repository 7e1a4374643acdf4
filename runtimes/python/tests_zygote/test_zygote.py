"""Tests the names of a zygote's workers, and the removal of residue of earlier zygotes."""
import os
import shutil
import tempfile
import unittest

from rookery_zygote import cgroups, zygote

#: A pid above the kernel's maximum.
NOBODY = 4194305


class Made:
    """The facts that a zygote has found out about its machine."""

    def __init__(self, workers, instances, groups):
        self.workers = workers
        self.instances = instances
        self.layers = self
        # A directory is removed in the same way as a group: only when it is empty.
        self.places = {'memory': cgroups.Place(2, groups), 'pids': cgroups.Place(2, groups)}


class Names(unittest.TestCase):
    def setUp(self):
        self.run_dir = tempfile.mkdtemp(prefix='rookery-zygote-')
        self.addCleanup(shutil.rmtree, self.run_dir)

    def make(self):
        made = zygote.Zygote({'name': 'py3.11-a', 'runDir': self.run_dir})
        self.addCleanup(os.close, made._directory)
        made._plan = Made(*[self.directory(name) for name in ('spares', 'instances', 'groups')])
        return made

    def directory(self, name):
        path = os.path.join(self.run_dir, name)
        if not os.path.isdir(path):
            os.mkdir(path)
        return path

    def left(self, name):
        return sorted(os.listdir(os.path.join(self.run_dir, name)))

    def test_names_of_workers_never_repeat_when_pid_and_number_do(self):
        names = set()
        for _ in range(3):
            made = self.make()
            # Counts in the way of `_make_worker`.
            names.update('%s-%d' % (made._prefix, number) for number in (1, 2))
        self.assertEqual(len(names), 6)
        for name in names:
            self.assertRegex(name, '^py3\\.11-a-[0-9a-f]{16}-%d-[12]$' % os.getpid())

    def test_residue_of_earlier_zygotes_is_swept_also_with_the_same_pid(self):
        made = self.make()
        gone = ['py3.11-a-%d-1' % os.getpid(), 'py3.12-b-0123456789abcdef-%d-2' % os.getpid(), 'program3.12-c-%d-3' % NOBODY]
        gone.append('probe-0123456789abcdef-%d-1' % os.getpid())
        # Names of a living process, and of supervisord with an owner that consists of digits.
        kept = ['py3.11-a-0123456789abcdef-%d-1' % os.getppid(), 'rookery-12345678-1']
        for name in gone + kept:
            self.directory('groups/' + name)
            self.directory('spares/' + name)
            with open(os.path.join(self.run_dir, 'spares', name, 'state.json'), 'w') as state:
                state.write('{"launcher":"py3.11-a"}')
        made._sweep()
        self.assertEqual((self.left('groups'), self.left('spares')), (sorted(kept), sorted(kept)))

    def test_a_group_in_which_an_instance_lives_stays(self):
        made = self.make()
        name = 'py3.11-a-0123456789abcdef-%d-1' % os.getpid()
        self.directory('groups/' + name)
        self.directory('groups/%s/process' % name)
        made._sweep()
        self.assertEqual(self.left('groups'), [name])


if __name__ == '__main__':
    unittest.main()
