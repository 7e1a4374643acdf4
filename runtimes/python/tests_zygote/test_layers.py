"""Doing without a layer of isolation."""
import unittest

from rookery_zygote import cgroups, layers


class Layers(unittest.TestCase):
    def test_what_is_dropped_is_told_with_its_meaning(self):
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
