"""Namespaces that a process makes for its child."""
import os
import unittest

from rookery_zygote import syscalls, user_limits


def in_child(call, meanwhile=lambda child: None):
    """What `call` returns in a child, as a text; `<its error>` when it fails. `meanwhile` is done here, for the child's pid."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(call())
        except OSError as error:
            said = '<%s>' % (error.strerror or error)
        finally:
            os.write(sender, said.encode())
            os._exit(0)
    os.close(sender)
    meanwhile(child)
    with os.fdopen(receiver) as source:
        said = source.read()
    os.waitpid(child, 0)
    return said


def offered(use):
    """What `use` returns in a process that was offered a namespace and has taken it."""
    def make():
        offer = user_limits.Offer()
        return in_child(lambda: use(offer.take()), offer.make)

    return in_child(make)


@unittest.skipUnless(os.geteuid() == 0, 'not root')
class UserLimits(unittest.TestCase):
    def test_every_id_is_mapped_to_itself_and_nobody_else_is_its_owner(self):
        def use(namespace):
            namespace.enter()
            with open('/proc/self/uid_map') as uids, open('/proc/self/gid_map') as gids:
                self.assertEqual(uids.read().split() + gids.read().split(), ['0', '0', '4294967295'] * 2)
            os.setgroups([5, 7])
            return os.getresuid(), os.getresgid(), os.getgroups()

        self.assertEqual(offered(use), '((0, 0, 0), (0, 0, 0), [5, 7])')

    def test_two_are_not_the_same(self):
        def use(namespace):
            return os.fstat(namespace._descriptor).st_ino

        def both(namespace):
            return os.fstat(namespace._descriptor).st_ino, offered(use)

        self.assertEqual(len(set(offered(both).strip('()').replace("'", '').split(', '))), 2)

    def test_owners_of_processes_that_live_differ(self):
        owners = {user_limits._owner(pid) for pid in range(1, 1 << 16, 7)}
        self.assertEqual(len(owners), len(range(1, 1 << 16, 7)))
        self.assertGreaterEqual(min(owners), 0x70000000)
        self.assertLess(user_limits._owner((1 << 22) - 1), 0x7FFE0000)

    def test_where_the_machine_forbids_it_the_child_hears_why(self):
        def take():
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            return offered(lambda namespace: 'taken')

        # Of a user namespace that knows no id, and so no owner.
        self.assertEqual(in_child(take), '<Invalid argument>')

        def forbidden():
            # Of this namespace only.
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            with open('/proc/sys/user/max_user_namespaces', 'w') as limit:
                limit.write('0')
            return offered(lambda namespace: 'taken')

        self.assertRegex(in_child(forbidden), '^<.+>$')

    def test_a_parent_does_not_wait_for_a_child_that_has_ended(self):
        def make():
            offer = user_limits.Offer()
            child = os.fork()
            if child == 0:
                os._exit(0)
            offer.make(child)
            return 'done'

        self.assertEqual(in_child(make), 'done')
