"""Namespaces that a child makes for itself and its parent."""
import os
import unittest

from rookery_zygote import syscalls, user_limits


def in_child(call):
    """What `call` returns in a child, as a text; `<its error>` when it fails."""
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
    with os.fdopen(receiver) as source:
        said = source.read()
    os.waitpid(child, 0)
    return said


def offered(use, in_maker=lambda: None):
    """What `use` returns in a process that has taken the namespace that its child made; `in_maker` is done in the child."""
    def take():
        offer = user_limits.Offer(os.getpid())
        child = os.fork()
        if child == 0:
            try:
                offer.make()
                in_maker()
            finally:
                os._exit(0)
        try:
            return use(offer.take())
        finally:
            os.waitpid(child, 0)

    return in_child(take)


def ids():
    with open('/proc/self/uid_map') as uids, open('/proc/self/gid_map') as gids:
        maps = uids.read().split() + gids.read().split()
    os.setgroups([5, 7])
    return maps, os.getresuid(), os.getresgid(), os.getgroups()


EVERY_ID = "(['0', '0', '4294967295', '0', '0', '4294967295'], (0, 0, 0), (0, 0, 0), [5, 7])"


@unittest.skipUnless(os.geteuid() == 0, 'not root')
class UserLimits(unittest.TestCase):
    def test_every_id_is_mapped_to_itself_and_nobody_else_is_its_owner(self):
        def use(namespace):
            namespace.enter()
            return ids()

        self.assertEqual(offered(use), EVERY_ID)

    def test_the_one_that_made_it_is_in_it_with_no_right_on_the_host(self):
        receiver, sender = os.pipe()

        def tell():
            with open('/proc/self/status') as status:
                held = [line.split()[1] for line in status if line.startswith(('CapEff', 'CapPrm'))]
            try:
                syscalls.setns(host, syscalls.CLONE_NEWUTS)
                reaches = True
            except OSError:
                reaches = False
            os.write(sender, ('%s %s %d %s' % (ids(), set(held) == {'%016x' % 0}, reaches, os.stat('/proc/self/ns/user').st_ino)).encode())

        def use(namespace):
            told = os.read(receiver, 4096).decode()
            return '%s %s' % (told, os.fstat(namespace.descriptor).st_ino)

        host = os.open('/proc/self/ns/uts', os.O_RDONLY)
        self.addCleanup(os.close, host)
        said, made, taken = offered(use, tell).rsplit(' ', 2)
        self.assertEqual(said, EVERY_ID + ' False 0')
        self.assertEqual(made, taken)
        os.close(receiver)
        os.close(sender)

    def test_two_are_not_the_same(self):
        def use(namespace):
            return os.fstat(namespace.descriptor).st_ino

        def both(namespace):
            return os.fstat(namespace.descriptor).st_ino, offered(use)

        self.assertEqual(len(set(offered(both).strip('()').replace("'", '').split(', '))), 2)

    def test_owners_of_processes_that_live_differ(self):
        owners = {user_limits._owner(pid) for pid in range(1, 1 << 16, 7)}
        self.assertEqual(len(owners), len(range(1, 1 << 16, 7)))
        self.assertGreaterEqual(min(owners), 0x70000000)
        self.assertLess(user_limits._owner((1 << 22) - 1), 0x7FFE0000)

    def test_where_the_machine_forbids_it_the_parent_hears_why(self):
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

    def test_neither_waits_for_the_other_that_has_ended(self):
        def taken():
            offer = user_limits.Offer(os.getpid())
            if os.fork() == 0:
                os._exit(0)
            return offer.take()

        self.assertEqual(in_child(taken), '<its maker has ended>')

        # Here the parent is the child itself, which lets go of that end.
        self.assertEqual(in_child(lambda: user_limits.Offer(os.getpid()).make()), '<Broken pipe>')
