"""Tests sandboxes without some layer of isolation."""
import os
import unittest

from rookery_zygote import cgroups, layers, syscalls


class Layers(unittest.TestCase):
    def test_a_dropped_layer_is_reported_with_its_meaning(self):
        held = layers.Layers({'cpu': cgroups.Place(1, '/x')}, needs_user=False)
        held.drop('cgroup.cpu', 'Read-only file system')
        self.assertEqual(held.degraded, ['cgroup.cpu is not available here (Read-only file system): cpu is not bounded'])
        self.assertEqual(held.places, {})
        held.drop('cgroup.cpu', 'again')
        self.assertEqual(len(held.degraded), 1)

    def test_an_ordinary_user_without_user_namespaces_has_no_layers(self):
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
class Twice(unittest.TestCase):
    def test_a_process_that_may_not_return_to_its_own_namespace_forks_twice(self):
        self.assertFalse(layers.Layers({}, needs_user=False).forks_twice())
        self.assertTrue(layers.Layers({}, needs_user=True).forks_twice())

        child = os.fork()
        if child == 0:
            # The process is root in its user namespace, but does not own the pid namespace.
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            os._exit(layers.Layers({}, needs_user=False).forks_twice())
        self.assertEqual(os.waitpid(child, 0)[1] >> 8, 1)

    def test_a_start_without_a_pid_namespace_forks_once(self):
        held = layers.Layers({}, needs_user=True)
        held.drop('pid', 'Operation not permitted')
        self.assertFalse(held.forks_twice())


class Finding(unittest.TestCase):
    def find(self, *failures):
        left = [{'layer': layer, 'reason': 'No such device'} for layer in failures]
        tried = []

        def try_all(held):
            tried.append(set(held.held))
            return left.pop(0) if left else None

        return layers.find(['ipc'], try_all), tried

    def test_every_enabled_layer_is_tried_until_the_remaining_layers_work(self):
        held, tried = self.find('seccomp', 'uts')
        self.assertEqual([sorted(before - after) for before, after in zip(tried, tried[1:])], [['seccomp'], ['uts']])
        self.assertTrue(all(layer not in held.held for layer in ('ipc', 'seccomp', 'uts')))
        sentences = [layers.sentence(layer, 'No such device') for layer in ('seccomp', 'uts')]
        self.assertEqual([one for one in held.degraded if 'No such device' in one], sentences)
        self.assertIn(layers.sentence('ipc', 'switched off by a setting'), held.degraded)


if __name__ == '__main__':
    unittest.main()
