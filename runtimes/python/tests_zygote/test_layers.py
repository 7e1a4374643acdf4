"""Doing without a layer of isolation."""
import os
import unittest
import unittest.mock

from rookery_zygote import cgroups, layers, syscalls


class Layers(unittest.TestCase):
    def test_a_dropped_layer_is_reported_with_its_meaning(self):
        held = layers.Layers({'cpu': cgroups.Place(1, '/x')}, needs_user=False)
        held.drop('cgroup.cpu', 'Read-only file system')
        self.assertEqual(held.degraded, ['cgroup.cpu is not available here (Read-only file system): cpu is not bounded'])
        self.assertEqual(held.places, {})
        held.drop('cgroup.cpu', 'again')
        self.assertEqual(len(held.degraded), 1)

    def test_without_a_user_namespace_an_ordinary_user_has_none(self):
        held = layers.Layers({}, needs_user=True)
        held.drop('user', 'Operation not permitted')
        self.assertEqual(held.words(), ['capabilities', 'no_new_privs', 'seccomp'])
        self.assertFalse(held.needs_user)

    def test_a_filter_needs_no_new_privs(self):
        held = layers.Layers({}, needs_user=False)
        held.drop('no_new_privs', 'Invalid argument')
        self.assertNotIn('seccomp', held.words())

    def test_root_has_no_user_namespace(self):
        self.assertNotIn('user', layers.Layers({}, needs_user=False).words())
        self.assertIn('user', layers.Layers({}, needs_user=True).words())


@unittest.skipUnless(layers.is_privileged(), 'not root')
class ForkInit(unittest.TestCase):
    def told(self, held, fork):
        """What `held` makes of a child: its pid as it counts itself, and whether the parent knows it by that one."""
        receiver, sender = os.pipe()
        child = fork(held)
        if child == 0:
            os.write(sender, str(os.getpid()).encode())
            os._exit(0)
        os.close(sender)
        os.waitpid(child, 0)
        with os.fdopen(receiver) as source:
            return int(source.read()), child

    def test_each_child_is_the_first_of_a_pid_namespace_of_its_own_and_other_children_are_not(self):
        held = layers.Layers({}, needs_user=False)
        before = os.readlink('/proc/self/ns/pid_for_children')
        for _ in range(2):
            itself, here = self.told(held, layers.fork_init)
            self.assertEqual(itself, 1)
            self.assertNotEqual(here, 1)
            self.assertEqual(os.readlink('/proc/self/ns/pid_for_children'), before)
            itself, here = self.told(held, lambda _held: os.fork())
            self.assertEqual(itself, here)

    def test_a_fork_that_fails_leaves_nothing_behind(self):
        held = layers.Layers({}, needs_user=False)
        before = os.readlink('/proc/self/ns/pid_for_children')
        with unittest.mock.patch('os.fork', side_effect=OSError(11, 'no')):
            self.assertRaises(OSError, layers.fork_init, held)
        self.assertEqual(os.readlink('/proc/self/ns/pid_for_children'), before)

    def test_a_process_that_may_not_return_to_its_own_namespace_forks_twice(self):
        self.assertFalse(layers.Layers({}, needs_user=False).forks_twice())
        self.assertTrue(layers.Layers({}, needs_user=True).forks_twice())

        child = os.fork()
        if child == 0:
            # Root there, but the pid namespace is another one's.
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            os._exit(layers.Layers({}, needs_user=False).forks_twice())
        self.assertEqual(os.waitpid(child, 0)[1] >> 8, 1)

    def test_without_a_pid_namespace_it_is_a_fork(self):
        held = layers.Layers({}, needs_user=False)
        held.drop('pid', 'Operation not permitted')
        itself, here = self.told(held, layers.fork_init)
        self.assertEqual(itself, here)
