"""
Tests the resources that the kernel counts per user.

Each sandbox of a root service has a user namespace with a unique owner.
"""
import fcntl
import json
import os
import signal
import socket
import struct
import unittest

from rookery_zygote import forking, layers, syscalls

from forked import Forked, children, link
from starting import mount

FIRST_OWNER, MOST_PIDS = 0x70000000, 1 << 22
#: Uids above this one have a meaning for the kernel and for distributions.
LAST_OWNER = 0x7FFE0000
_GET_OWNER_UID = 0xB704
EVERY_ID = [['0', '0', '4294967295'] * 2, [0, 0, 0], [0, 0, 0], [5, 7]]


def ids():
    with open('/proc/self/uid_map') as uids, open('/proc/self/gid_map') as gids:
        maps = uids.read().split() + gids.read().split()
    os.setgroups([5, 7])
    return [maps, os.getresuid(), os.getresgid(), os.getgroups()]


def fails(call, *arguments):
    try:
        call(*arguments)
    except OSError:
        return True
    return False


def owner_of(pid):
    descriptor = os.open('/proc/%d/ns/user' % pid, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return struct.unpack('I', fcntl.ioctl(descriptor, _GET_OWNER_UID, b'\0' * 4))[0]
    finally:
        os.close(descriptor)


def state_of(pid):
    with open('/proc/%d/stat' % pid) as source:
        return source.read().rpartition(')')[2].split()[0]


class UserLimits(Forked):
    def setUp(self):
        super(UserLimits, self).setUp()
        if not self.plan.layers.has('user_limits'):
            self.skipTest('this machine forbids user namespaces')

    def state_of(self, worker):
        with open(os.path.join(self.plan.workers, worker.name, 'state.json')) as source:
            return json.load(source)

    def test_every_id_is_mapped_to_itself(self):
        self.fork(self.make_forks(), self.tell(ids)).ready()
        self.assertEqual(self.heard(), EVERY_ID)

    def test_the_users_process_has_capabilities_inside_and_no_rights_on_the_host(self):
        test = os.getpid()

        def try_all():
            with open('/proc/self/status') as status:
                held = {line.split()[1] for line in status if line.startswith(('CapEff', 'CapPrm'))}
            # All of these belong to the host.
            return [
                held == {'%016x' % 0}, fails(os.open, '/proc/%d/ns/uts' % test, os.O_RDONLY), fails(socket.sethostname, 'other'),
                fails(mount, 'test', '/tmp', 'tmpfs'),
            ]

        # Without the filter, which would refuse some of these operations too.
        self.fork(self.make_forks(self.changed('seccomp')), self.tell(try_all)).ready()
        self.assertEqual(self.heard(), [False, True, True, True])

    def test_the_first_process_of_a_namespace_is_outside_until_it_starts_another(self):
        worker = self.fork(self.make_forks(), self.tell(lambda: int(os.readlink('/proc/self'))))
        first, user = worker.ready(), self.heard()
        self.assertEqual(link(first, 'user'), link('self', 'user'))
        self.assertNotEqual(link(user, 'user'), link('self', 'user'))

    def test_two_namespaces_differ_and_so_do_the_owners_of_live_processes(self):
        forks = self.make_forks()
        found, owners = set(), set()
        for _ in range(3):
            first = self.fork(forks).ready()
            (user,) = children(first)
            found.add(link(user, 'user'))
            owners.add(owner_of(user))
            # Owners correspond to pids, so two living processes have different owners.
            expected = FIRST_OWNER + os.stat('/proc/%d/ns/pid' % first).st_ino % 32 * MOST_PIDS + first % MOST_PIDS
            self.assertEqual(owner_of(user), expected)
        self.assertEqual((len(found), len(owners)), (3, 3))
        self.assertLess(FIRST_OWNER + 32 * MOST_PIDS, LAST_OWNER)

    def test_a_worker_continues_and_reports_it_where_the_machine_forbids_a_user_namespace(self):
        def forbidden():
            # The setting applies to this namespace only.
            with open('/proc/sys/user/max_user_namespaces', 'w') as limit:
                limit.write('0')
            made = self.changed()
            # Created here, because this process may not return to its pid namespace.
            made.layers = layers.Layers(self.plan.layers.places, needs_user=False)
            worker = self.fork(forking.Forks(made), lambda: os.read(4, 65536))
            worker.ready()
            return [self.state_of(worker)['lacks'], worker.start()]

        lacks, answer = self.in_user_namespace(forbidden)
        self.assertEqual((lacks, answer['ok']), (['user_limits'], True))
        self.assertEqual(len(answer['warnings']), 1)
        self.assertRegex(answer['warnings'][0], r'^user_limits is not available here \([^)]+\): all sandboxes of one user share ')

    def test_an_ended_process_of_the_user_is_an_end_without_an_answer(self):
        worker = self.fork(self.make_forks())
        (user,) = children(worker.ready())
        os.kill(user, signal.SIGKILL)
        # A kill takes effect a moment later. The process stays a zombie until it is waited for.
        self.wait_for(lambda: state_of(user) == 'Z', 'it lives on')
        self.assertIsNone(worker.start())


if __name__ == '__main__':
    unittest.main()
