"""Tests finding the place of Rookery's groups and their files, in directories that imitate a hierarchy."""
import os
import shutil
import tempfile
import unittest

from rookery_zygote import cgroups


class Places(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix='rookery-cgroups-')
        self.addCleanup(shutil.rmtree, self.root)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), 'w') as target:
            target.write(text)
        return self.path(name)

    def find(self, own, mounts):
        return cgroups.find_places(self.write('own', own), self.write('mounts', mounts))

    def test_version_1_yields_a_group_per_controller_below_the_own_group(self):
        os.makedirs(self.path('memory', 'mine'))
        os.makedirs(self.path('cpu'))
        places = self.find(
            '5:memory:/mine\n4:cpu,cpuacct:/\n',
            '30 1 0:1 / %s rw - cgroup cgroup rw,memory\n31 1 0:2 / %s rw - cgroup cgroup rw,cpu,cpuacct\n'
            % (self.path('memory'), self.path('cpu')),
        )
        self.assertEqual(sorted(places), ['cpu', 'memory'])
        self.assertEqual(places['memory'].parent, self.path('memory', 'mine', 'rookery'))
        self.assertEqual(places['cpu'].parent, self.path('cpu', 'rookery'))
        self.assertEqual(places['cpu'].version, 1)

    def test_a_mount_of_a_part_of_the_hierarchy_is_the_root_of_that_part(self):
        os.makedirs(self.path('pids'))
        places = self.find(
            '3:pids:/docker/abc\n', '30 1 0:1 /docker/abc %s rw - cgroup cgroup rw,pids\n' % self.path('pids')
        )
        self.assertEqual(places['pids'].parent, self.path('pids', 'rookery'))

    def test_version_2_requires_controllers_enabled_for_children(self):
        self.write('unified/mine/cgroup.controllers', 'cpu memory pids\n')
        self.write('unified/mine/cgroup.subtree_control', 'memory pids\n')
        self.write('unified/mine/rookery/cgroup.subtree_control', 'memory pids\n')
        places = self.find('0::/mine\n', '30 1 0:1 / %s rw - cgroup2 cgroup2 rw\n' % self.path('unified'))
        # In this directory the file of cpu accepts any text. The kernel's would refuse or obey.
        self.assertEqual(places['memory'].version, 2)
        self.assertEqual(places['memory'].parent, self.path('unified', 'mine', 'rookery'))

    def test_version_2_without_controllers_yields_no_control_group(self):
        self.write('unified/cgroup.controllers', '\n')
        self.assertEqual(self.find('0::/\n', '30 1 0:1 / %s rw - cgroup2 cgroup2 rw\n' % self.path('unified')), {})

    def test_an_unreadable_file_yields_no_control_group(self):
        self.assertEqual(cgroups.find_places('/no/such/file', '/no/such/file'), {})


class Counts(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix='rookery-limits-')
        self.addCleanup(shutil.rmtree, self.root)

    def test_out_of_memory_kills_are_counted_in_both_versions(self):
        for name in ('memory.oom_control', 'memory.events'):
            path = os.path.join(self.root, name)
            with open(path, 'w') as target:
                target.write('oom_kill_disable 0\nunder_oom 0\noom 5\noom_kill 2\n')
            descriptor = os.open(path, os.O_RDONLY)
            self.assertEqual(cgroups.read_oom_kills(descriptor), 2)
            os.close(descriptor)
        self.assertEqual(cgroups.read_oom_kills(None), 0)

    def test_removing_what_is_gone_is_a_success(self):
        group = os.path.join(self.root, 'one')
        os.mkdir(group)
        self.assertTrue(cgroups.remove([group, group]))
        self.assertTrue(cgroups.remove([group]))
        os.makedirs(os.path.join(group, 'held'))
        self.assertFalse(cgroups.remove([group]))
