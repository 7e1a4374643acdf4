"""Real workers, forked in the way of a zygote and a shim: shared by the tests of forking and of limits."""
import copy
import errno
import json
import os
import shutil
import signal
import socket
import tempfile
import unittest

from rookery_zygote import cgroups, forking, frames, layers, network, plan, process, syscalls, waiting
from starting import SECONDS, request

IS_PRIVILEGED = layers.is_privileged()


class Untitled:
    """A title that leaves this process's command line unchanged."""

    def set(self, text):
        pass


def wait_for_the_end():
    """Runs a user's process that does nothing. Its orders end together with its first process."""
    os.read(4, 1)


class Worker:
    """A worker, seen by the process that ordered it."""

    def __init__(self, name, control):
        self.name = name
        self.control = control
        control.settimeout(SECONDS)

    def hear(self):
        data = self.control.recv(4096)
        return json.loads(data.decode()) if data else None

    def ready(self):
        """Returns the pid of its first process."""
        said = self.hear()
        if said is None or 'ready' not in said:
            raise AssertionError('no worker: %s' % said)
        return said['ready']

    def hand_over(self):
        """Transfers a connection to the worker and returns the caller's end."""
        ours, theirs = socket.socketpair()
        ours.settimeout(SECONDS)
        with theirs:
            self.control.sendmsg([b's'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, theirs.fileno().to_bytes(4, 'little'))])
        return ours

    def start(self, **changed):
        """Returns the answer to a start."""
        with self.hand_over() as connection:
            frames.write_message(connection, request(**changed))
            return frames.read_message(connection)


@unittest.skipUnless(IS_PRIVILEGED, 'not root')
class Forked(unittest.TestCase):
    """Base of tests that fork workers. Fails when a worker leaves residue."""

    def setUp(self):
        self.base = os.path.realpath(tempfile.mkdtemp(prefix='rookery-forking-'))
        self.addCleanup(shutil.rmtree, self.base)
        self.count = 0
        # The name has the form of a zygote's, so that the next zygote removes the residue of a killed test.
        # Forked children of this test use it too.
        self.prefix = 'rktest-%d-' % os.getpid()
        # Adopts orphans: the first process may be the child of a process that only creates it.
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        self.addCleanup(syscalls.prctl, syscalls.PR_SET_CHILD_SUBREAPER, 0)
        # Interrupts a wait for a process that does not end.
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, self.on_alarm))
        self.addCleanup(signal.alarm, 0)
        signal.alarm(2 * SECONDS)
        self.plan = self.make_plan()
        self.addCleanup(self.check_nothing_is_left)
        self.fifo = os.path.join(self.base, 'told')
        os.mkfifo(self.fifo)

    @staticmethod
    def on_alarm(*_ignored):
        raise AssertionError('it hangs')

    def make_plan(self):
        config = {
            'name': 'rktest', 'runDir': os.path.join(self.base, 'run'), 'dataDir': os.path.join(self.base, 'data'), 'disable': [],
            'hostPaths': [], 'logBytes': 1000, 'logFiles': 3,
        }
        return plan.Plan(config, Untitled())

    def changed(self, *dropped, **attributes):
        """Returns the plan without these layers, and with these attributes."""
        made = copy.copy(self.plan)
        made.layers = copy.deepcopy(self.plan.layers)
        for layer in dropped:
            made.layers.drop(layer, 'a test')
        for name, value in attributes.items():
            setattr(made, name, value)
        return made

    def with_networks(self, made):
        """Adds networks whose other end is on the host. Their packets are not forwarded."""
        made.networks = network.Networks({'range': '10.231.0.0/16', 'always': False, 'setForwarding': False})
        made.networks.range = network.Range('10.231.0.0/16')
        made.networks.missing = None
        return made

    def make_forks(self, made=None):
        forks = forking.Forks(made or self.plan)
        self.addCleanup(forks.close)
        return forks

    def next_name(self):
        self.count += 1
        return '%s%d' % (self.prefix, self.count)

    def fork(self, forks, life=wait_for_the_end, asked=forking.HOST):
        """Forks a worker. `life` is run in the user's process."""
        name = self.next_name()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(ours.close)
        with theirs:
            pid = forks.fork(name, asked, theirs)
            if pid == 0:
                live(life)
        return Worker(name, ours)

    def start_server(self, life=wait_for_the_end, made=None):
        try:
            server = forking.start_server(made or self.plan)
        except forking.BecomeServer as child:
            # `live` returns in the user's processes.
            live(lambda: (forking.live(child.plan, child.forks, child.connection), life()))
        self.addCleanup(self.end_server, server)
        return server

    @staticmethod
    def end_server(server):
        if server.fileno() != -1:
            server.close()

    def order(self, server, asked=forking.HOST):
        name = self.next_name()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(ours.close)
        with theirs:
            server.order(name, asked, theirs)
        return Worker(name, ours)

    def tell(self, call):
        """
        Returns a function that reports the result or the error of `call` to this test, and then does nothing.
        """
        def life():
            try:
                said = call()
            except OSError as error:
                said = errno.errorcode.get(error.errno, str(error))
            with open(self.fifo, 'w') as target:
                target.write(json.dumps(said) + '\n')
            wait_for_the_end()

        return life

    def heard(self):
        """
        Returns the report of a process that has closed everything else by then.

        Only one process may report.
        """
        # Opening waits for the reporting process, which waits for this test too.
        with open(self.fifo) as source:
            return json.loads(source.read())

    def in_user_namespace(self, call):
        """Returns the result of `call` in a process that has all user ids but no rights on the host."""
        told, teller = os.pipe()
        may_go, mapped = os.pipe()
        child = os.fork()
        if child == 0:
            said = None
            try:
                syscalls.unshare(syscalls.CLONE_NEWUSER)
                os.write(teller, b'.')
                os.read(may_go, 1)
                said = call()
            except BaseException as error:
                said = '%s: %s' % (type(error).__name__, error)
            finally:
                os.write(teller, json.dumps(said).encode())
                os._exit(0)
        os.close(teller)
        self.assertEqual(os.read(told, 1), b'.')
        for name in ('uid_map', 'gid_map'):
            with open('/proc/%d/%s' % (child, name), 'w') as target:
                target.write('0 0 4294967295')
        os.write(mapped, b'.')
        with os.fdopen(told) as source:
            said = source.read()
        os.waitpid(child, 0)
        os.close(may_go)
        os.close(mapped)
        return json.loads(said)

    def kill(self, first, worker):
        """Kills a worker as the machine may. The process that ordered the worker removes its residue."""
        os.kill(first, signal.SIGKILL)
        shutil.rmtree(os.path.join(self.plan.workers, worker.name))

    def wait_for(self, is_so, what):
        self.assertTrue(waiting.until(is_so, SECONDS, 0.005), what)

    def check_nothing_is_left(self):
        """Checks that no process is left. All workers have been abandoned by now: their pairs are closed."""
        try:
            self.wait_for(lambda: not waiting.reap(lambda *_ignored: None), 'processes are left')
        finally:
            for pid in process.descendants(os.getpid()):
                process.kill(pid)
        parents = [place.parent for place in self.plan.layers.places.values() if os.path.isdir(place.parent)]
        paths = [os.path.join(parent, name) for parent in set(parents) for name in os.listdir(parent) if name.startswith(self.prefix)]
        self.wait_for(lambda: cgroups.remove(paths), 'groups are left')
        self.assertEqual(os.listdir(self.plan.workers), [])
        with open('/proc/self/mountinfo') as mounts:
            self.assertNotIn(self.base, mounts.read())


def live(life):
    """Runs `life` in a process that is no longer part of the test. Never returns."""
    code = 1
    try:
        life()
        code = 0
    except BaseException as error:
        os.write(2, ('%s: %s\n' % (type(error).__name__, error)).encode())
    finally:
        os._exit(code)


def children(pid):
    return sorted(child for child, parent in process.parents().items() if parent == pid)


def link(pid, kind):
    return os.readlink('/proc/%s/ns/%s' % (pid, kind))
