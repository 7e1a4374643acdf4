"""
Tests forking of workers: their namespaces and groups, the reports of their ends and failures, and their
residue.
"""
import copy
import ctypes
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import unittest

from rookery_zygote import cgroups, forking, frames, layers, native, process, syscalls

import forked
from forked import Forked, children, link
from starting import SECONDS, request

NO_SUCH = 'No such file or directory'
PACKAGE = os.path.dirname(os.path.abspath(forking.__file__))


def pid_on_host():
    """Returns this process's pid on the host, while the host's /proc is still visible."""
    return int(os.readlink('/proc/self'))


def ids_of_itself():
    return [os.getpid(), pid_on_host()]


class Workers(Forked):
    """Tests workers that this process forks, as a shim does."""

    def wait_for_exit(self):
        def has_ended():
            with open(os.path.join(self.plan.instances, 'one', 'state.json')) as state:
                return '"exit"' in state.read()

        self.wait_for(has_ended, 'it does not end')

    def test_only_the_first_process_of_a_worker_enters_the_new_pid_namespace(self):
        before = link('self', 'pid_for_children')
        forks = self.make_forks()
        found = []
        for _ in range(2):
            first = self.fork(forks).ready()
            with open('/proc/%d/status' % first) as status:
                numbers = [line.split()[1:] for line in status if line.startswith('NSpid:')][0]
            self.assertEqual(numbers[-1], '1')
            found.append(link(first, 'pid'))
            self.assertEqual(link('self', 'pid_for_children'), before)
            receiver, sender = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(sender, str(os.getpid()).encode())
                os._exit(0)
            os.waitpid(child, 0)
            self.assertEqual(os.read(receiver, 16), str(child).encode())
            os.close(receiver)
            os.close(sender)
        self.assertEqual(len(set(found + [before])), 3)

    def test_the_users_process_is_its_only_child_and_has_five_descriptors(self):
        held = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
        os.set_inheritable(held[3], True)
        worker = self.fork(self.make_forks(), self.tell(ids_of_itself))
        first = worker.ready()
        inside, user = self.heard()
        self.assertEqual((children(first), inside), ([user], 2))
        self.assertEqual(sorted(os.listdir('/proc/%d/fd' % user)), ['0', '1', '2', '3', '4'])
        modes = [os.stat('/proc/%d/fd/%d' % (user, number)) for number in range(5)]
        self.assertEqual(modes[0].st_rdev, os.stat(os.devnull).st_rdev)
        self.assertEqual([stat.S_IFMT(about.st_mode) for about in modes[1:]], [stat.S_IFIFO, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFSOCK])
        self.assertEqual(modes[1].st_ino, modes[2].st_ino)
        for descriptor in held:
            os.close(descriptor)

    def test_a_worker_reads_its_processor_from_the_kernel(self):
        """A C library relies on this for data that it keeps for each processor."""
        libc = ctypes.CDLL(None)
        number = {'x86_64': 309, 'aarch64': 168}.get(syscalls.MACHINE)
        if number is None or len(os.sched_getaffinity(0)) < 2:
            self.skipTest('there is one processor, or this machine is not known here')

        def processors():
            found = []
            for wanted in sorted(os.sched_getaffinity(0)) * 2:
                os.sched_setaffinity(0, [wanted])
                real = ctypes.c_uint()
                libc.syscall(ctypes.c_long(number), ctypes.byref(real), None, None)
                found.append([wanted, real.value, libc.sched_getcpu()])
            return found

        self.fork(self.make_forks(), self.tell(processors)).ready()
        for wanted, real, told in self.heard():
            self.assertEqual((real, told), (wanted, wanted))

    def test_a_worker_has_its_own_namespaces_and_groups(self):
        worker = self.fork(self.make_forks(), self.tell(pid_on_host))
        first, user = worker.ready(), self.heard()
        for name, kind in (('mount', 'mnt'), ('ipc', 'ipc'), ('uts', 'uts'), ('pid', 'pid')):
            if self.plan.layers.has(name):
                self.assertNotEqual(link(first, kind), link('self', kind))
                self.assertEqual(link(first, kind), link(user, kind))
        # The worker was ordered with the host's network.
        self.assertEqual(link(first, 'net'), link('self', 'net'))
        for path in cgroups.paths_of(self.plan.layers.places, worker.name).values():
            with open(os.path.join(path, 'cgroup.procs')) as members:
                self.assertEqual(sorted(int(line) for line in members), sorted([first, user]))

    def test_a_network_without_a_way_out_has_loopback(self):
        if not self.plan.layers.has('net'):
            self.skipTest('this machine forbids namespaces')

        def reach():
            with socket.socket() as listener:
                listener.bind(('127.0.0.1', 0))
                listener.listen(1)
                socket.create_connection(listener.getsockname(), SECONDS).close()
            return [name for _index, name in socket.if_nameindex()]

        first = self.fork(self.make_forks(), self.tell(reach), forking.NONE).ready()
        self.assertNotEqual(link(first, 'net'), link('self', 'net'))
        self.assertIn('lo', self.heard())

    def test_a_network_with_outside_access_has_the_address_of_its_state(self):
        if not self.plan.layers.has('net'):
            self.skipTest('this machine forbids namespaces')
        made = self.with_networks(self.changed())
        worker = self.fork(self.make_forks(made), self.tell(lambda: [name for _index, name in socket.if_nameindex()]), forking.OWN)
        worker.ready()
        self.assertIn('eth0', self.heard())
        state = self.state_of(worker)
        self.assertEqual((state['hasOwnNetwork'], state['address'].startswith('10.231.')), (True, True))
        # The other end is removed with the network, a moment later.
        name = 'rk%02x%02x%02x%02x' % tuple(int(part) for part in state['address'].split('.'))
        self.assertIn(name, [found for _index, found in socket.if_nameindex()])
        worker.control.close()
        self.wait_for(lambda: name not in [found for _index, found in socket.if_nameindex()], 'its interface is left')

    def state_of(self, worker):
        with open(os.path.join(self.plan.workers, worker.name, 'state.json')) as source:
            return json.load(source)

    def test_the_state_of_a_worker_contains_the_facts_for_its_removal(self):
        worker = self.fork(self.make_forks())
        first = worker.ready()
        places = self.plan.layers.places
        self.assertEqual(self.state_of(worker), {
            'pid': first, 'startTime': process.start_time(first), 'bootId': process.boot_id(), 'launcher': 'rktest', 'address': None,
            'groups': cgroups.paths_of(places, worker.name), 'groupVersions': {name: place.version for name, place in places.items()},
            'hasOwnNetwork': False, 'lacks': [],
        })

    def test_a_worker_without_a_pid_namespace_is_an_ordinary_child(self):
        worker = self.fork(self.make_forks(self.changed('pid')), self.tell(ids_of_itself))
        first = worker.ready()
        inside, user = self.heard()
        self.assertEqual((inside, children(first), link(first, 'pid')), (user, [user], link('self', 'pid')))
        self.assertIn(first, children(os.getpid()))

    def test_a_worker_in_a_user_namespace_is_forked_by_a_short_lived_process(self):
        held = layers.Layers(dict(self.plan.layers.places), needs_user=True)
        made = self.changed()
        made.layers = held
        self.assertIsNone(forking.try_worker(made, held))
        worker = self.fork(self.make_forks(made), self.tell(ids_of_itself))
        first = worker.ready()
        self.assertEqual(self.heard()[0], 2)
        self.assertNotEqual(link(first, 'user'), link('self', 'user'))
        self.assertNotEqual(link(first, 'pid'), link('self', 'pid'))
        self.assertEqual(link('self', 'pid_for_children'), link('self', 'pid'))

    def test_forking_leaves_the_signals_of_the_parent_unchanged(self):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        self.addCleanup(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        self.fork(self.make_forks(), self.tell(lambda: [int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, [])])).ready()
        self.assertEqual(signal.pthread_sigmask(signal.SIG_BLOCK, []), set(before) | {signal.SIGUSR1})
        self.assertEqual(self.heard(), [])

    def test_a_worker_starts_what_it_is_asked_for(self):
        worker = self.fork(self.make_forks())
        worker.ready()
        answer = worker.start()
        self.assertTrue(answer['ok'], answer)
        self.assertEqual(worker.hear(), {'taken': 'one'})
        self.wait_for_exit()
        # The end is recorded in the state, and the sockets without a listener are removed.
        self.wait_for(lambda: os.listdir(os.path.join(self.plan.instances, 'one')) == ['state.json'], 'files are left')

    def test_a_worker_whose_caller_leaves_at_the_last_moment_is_undone(self):
        for user, command in (('', {'kind': 'python', 'version': '3'}), ('54321', {'kind': 'exec', 'argv': ['/bin/sleep', '60']})):
            worker = self.fork(self.make_forks())
            worker.ready()
            with worker.hand_over() as connection:
                # The caller keeps its side open for sending, but no longer reads the answer.
                connection.shutdown(socket.SHUT_RD)
                frames.write_message(connection, request(user=user, command=command))
                self.assertIsNone(worker.hear())
            self.assertEqual(os.listdir(self.plan.instances), [])

    def test_the_limits_of_its_groups_are_written_in_the_order_in_which_the_kernel_takes_them(self):
        worker = self.fork(self.make_forks())
        worker.ready()
        answer = worker.start(memoryMb=64, cpuMillis=1500, maxProcesses=8)
        self.assertEqual((answer['ok'], [one for one in answer['warnings'] if 'limit' in one]), (True, []))
        expected = {
            'memory': {'memory.limit_in_bytes': str(64 << 20), 'memory.memsw.limit_in_bytes': str(64 << 20), 'memory.max': str(64 << 20)},
            'cpu': {'cpu.cfs_period_us': '100000', 'cpu.cfs_quota_us': '150000', 'cpu.max': '150000 100000'},
            'pids': {'pids.max': '9'},
        }
        for controller, path in cgroups.paths_of(self.plan.layers.places, worker.name).items():
            found = {}
            for name in expected[controller]:
                # Swap is not counted on every machine, and each version has its own file names.
                if os.path.exists(os.path.join(path, name)):
                    with open(os.path.join(path, name)) as source:
                        found[name] = source.read().strip()
            self.assertTrue(found)
            self.assertEqual(found, {name: expected[controller][name] for name in found})
        self.wait_for_exit()


class Astray(forking.Forks):
    """Forks whose descriptor of the own pid namespace is invalid."""

    def __init__(self, *arguments, **options):
        super(Astray, self).__init__(*arguments, **options)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, self._own_pid_namespace, False)
        os.close(nothing)


class Failures(Forked):
    def with_group(self, parent):
        made = self.changed()
        made.layers.places['cpu'] = cgroups.Place(1, parent)
        made.layers.held.add('cgroup.cpu')
        return made

    def with_missing_path(self):
        missing = os.path.join(self.base, 'missing')
        made = self.changed(root=copy.copy(self.plan.root))
        made.root.shown = [missing]
        return made, missing

    def remove_killed(self):
        for name in os.listdir(self.plan.workers):
            shutil.rmtree(os.path.join(self.plan.workers, name))

    def test_a_group_that_cannot_be_made_is_a_layer_with_a_name(self):
        made = self.with_group('/proc/none/rookery')
        said = forking.try_worker(made, made.layers)
        self.assertEqual((said['layer'], said['reason']), ('cgroup.cpu', NO_SUCH))

    def test_a_group_that_cannot_be_entered_too(self):
        # Groups can be created in this directory, but they have no files.
        parent = os.path.join(self.base, 'groups')
        os.mkdir(parent)
        made = self.with_group(parent)
        said = forking.try_worker(made, made.layers)
        self.assertEqual((said['layer'], said['reason']), ('cgroup.cpu', NO_SUCH))
        self.assertEqual(os.listdir(parent), [])

    def test_a_missing_path_of_the_root_is_a_failure(self):
        if not self.plan.layers.has('mount'):
            self.skipTest('this machine forbids mounts')
        made, missing = self.with_missing_path()
        said = forking.try_worker(made, made.layers)
        self.assertEqual((said['layer'], said['reason']), ('mount', NO_SUCH))
        self.assertIn(missing, said['failed'])

    def test_networks_and_limits_that_a_machine_forbids_are_some(self):
        for layer, setting in (('net', 'max_net_namespaces'), ('user_limits', 'max_user_namespaces')):
            def tried():
                # The setting applies to this namespace only.
                with open('/proc/sys/user/' + setting, 'w') as limit:
                    limit.write('0')
                made = self.changed()
                # Created here, because this process may not return to its pid namespace.
                made.layers = layers.Layers(self.plan.layers.places, needs_user=False)
                return made._try_layers(made.layers)['layer']

            self.assertEqual(self.in_user_namespace(tried), layer)

    def test_a_failure_outside_of_the_layers_is_an_error(self):
        made = self.changed(workers=os.path.join(self.base, 'none'))
        with self.assertRaises(OSError) as failed:
            forking.try_worker(made, made.layers)
        self.assertIn('its directory: ' + NO_SUCH, str(failed.exception))

    def test_a_waiting_caller_learns_of_a_failed_worker_and_nothing_remains(self):
        for made in (self.with_group('/proc/none/rookery'), self.with_missing_path()[0]):
            worker = self.fork(self.make_forks(made))
            waiting = worker.hand_over()
            self.addCleanup(waiting.close)
            said = worker.hear()
            answer = frames.read_message(waiting)
            self.assertEqual((answer['ok'], answer['code'], answer['message']), (False, 'internal', said['failed']))
            self.assertTrue(answer['message'].startswith('the sandbox cannot be made: '))
            # The worker ends although its pair is still open. It removes its directory; the groups are left
            # to the process that ordered it.
            self.assertIsNone(worker.hear())
            self.check_nothing_is_left()

    def test_a_first_process_that_cannot_be_executed_leaves_nothing(self):
        class Nothing(object):
            def fileno(self):
                return nothing

        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.addCleanup(os.close, nothing)
        worker = self.fork(self.make_forks(self.changed(program=Nothing())))
        self.assertIn('the native program cannot be executed: Permission denied', worker.hear()['failed'])
        self.assertIsNone(worker.hear())
        self.check_nothing_is_left()

    def test_a_process_that_cannot_go_back_to_its_pid_namespace_forks_no_more(self):
        if not self.plan.layers.has('pid'):
            self.skipTest('this machine has no pid namespaces')

        def fork_twice():
            forks = Astray(self.plan)
            for _ in range(2):
                try:
                    self.fork(forks)
                except OSError:
                    continue
                return 'forked'
            return 'refused, %d processes are left' % len(children(os.getpid()))

        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            forked.live(lambda: os.write(writer, str(fork_twice()).encode()))
        os.close(writer)
        with os.fdopen(reader) as source:
            said = source.read()
        os.waitpid(child, 0)
        self.assertEqual(said, 'refused, 0 processes are left')
        self.remove_killed()

    def test_a_fork_server_that_cannot_go_back_to_its_pid_namespace_ends(self):
        if not self.plan.layers.has('pid'):
            self.skipTest('this machine has no pid namespaces')
        before, forking.Forks = forking.Forks, Astray
        try:
            server = self.start_server()
        finally:
            forking.Forks = before
        worker = self.order(server)
        self.assertIsNone(server.ended())
        said = []
        while not said or said[-1] is not None:
            said.append(worker.hear())
        # The worker may have been ready before it was killed.
        self.assertIn('a worker cannot be forked', str(said))
        self.remove_killed()

    def test_a_subtree_that_another_service_has_removed_is_made_again(self):
        places = self.plan.layers.places
        if not places:
            self.skipTest('this machine has no control groups')
        controller, place = sorted(places.items())[0]
        made = self.changed()
        made.layers.places = {controller: cgroups.Place(place.version, os.path.join(place.parent, 'rktest-%d' % os.getpid()))}
        worker = self.fork(self.make_forks(made))
        worker.ready()
        (path,) = cgroups.paths_of(made.layers.places, worker.name).values()
        self.assertTrue(os.path.isdir(path))
        worker.control.close()
        self.wait_for(lambda: cgroups.remove([path]) and cgroups.remove([os.path.dirname(path)]), 'groups are left')


class Servers(Forked):
    """Tests workers that a separate process forks, as for a zygote."""

    def end_of(self, server, first):
        """
        Waits for the reported end of `first`.

        Processes that only create a first process may be reported before.
        """
        for _ in range(4):
            if server.ended() == first:
                return
        self.fail('the end of %d was not told' % first)

    def test_the_fork_server_outlives_its_children_and_reports_each_end(self):
        server = self.start_server()
        (itself,) = children(os.getpid())
        for _ in range(3):
            worker = self.order(server)
            first = worker.ready()
            self.assertEqual(children(itself), [first])
            self.kill(first, worker)
            self.end_of(server, first)
        worker = self.order(server)
        first = worker.ready()
        worker.control.close()
        self.end_of(server, first)
        self.assertEqual(children(os.getpid()), [itself])

    def test_the_fork_server_returns_only_in_processes_of_users(self):
        server = self.start_server(self.tell(ids_of_itself))
        (itself,) = children(os.getpid())
        for _ in range(2):
            first = self.order(server).ready()
            inside, user = self.heard()
            self.assertEqual((inside, children(first)), (2, [user]))
            self.assertEqual(sorted(os.listdir('/proc/%d/fd' % user)), ['0', '1', '2', '3', '4'])
        self.assertEqual(len(children(itself)), 2)

    def test_the_fork_server_stays_in_its_own_pid_namespace(self):
        server = self.start_server()
        (itself,) = children(os.getpid())
        firsts = [self.order(server).ready() for _ in range(2)]
        # The server returns to its namespace after the fork, when the sandbox may be ready already.
        own = {link('self', 'pid')}
        self.wait_for(lambda: {link(itself, 'pid'), link(itself, 'pid_for_children')} == own, 'its own namespace')
        self.assertEqual(len({link(first, 'pid') for first in firsts} | {link('self', 'pid')}), 3)

    def test_the_fork_server_works_without_a_pid_namespace(self):
        server = self.start_server(self.tell(ids_of_itself), self.changed('pid'))
        worker = self.order(server)
        first = worker.ready()
        inside, user = self.heard()
        self.assertEqual((inside, link(first, 'pid')), (user, link('self', 'pid')))
        os.kill(user, signal.SIGKILL)
        worker.control.close()
        self.end_of(server, first)

    def test_the_fork_server_works_in_a_user_namespace(self):
        made = self.changed()
        made.layers = layers.Layers(dict(self.plan.layers.places), needs_user=True)
        server = self.start_server(made=made)
        worker = self.order(server)
        first = worker.ready()
        worker.control.close()
        self.end_of(server, first)

    def test_the_fork_server_survives_the_failure_of_a_worker(self):
        made = self.changed(root=copy.copy(self.plan.root))
        here = os.path.join(self.base, 'here')
        os.mkdir(here)
        made.root.shown = [here]
        server = self.start_server(made=made)
        os.rmdir(here)
        failed = self.order(server)
        waiting = failed.hand_over()
        self.addCleanup(waiting.close)
        self.assertEqual(failed.hear()['layer'], 'mount')
        self.assertIn(here, frames.read_message(waiting)['message'])
        self.assertIsNotNone(server.ended())
        os.mkdir(here)
        self.order(server).ready()

    def test_the_fork_server_reads_orders_while_its_reports_are_not_read(self):
        # Each first process is made by a process that ends at once and is reported.
        made = self.changed()
        made.layers = layers.Layers({}, needs_user=True)
        # The reports alone would fill the pair. The program does not exist, so each worker ends at its start.
        made.program = open(os.devnull)
        self.addCleanup(made.program.close)
        server = self.start_server(made=made)
        for _ in range(700):
            self.order(server).control.close()
        for _ in range(700):
            self.assertIsNotNone(server.ended())

    def test_the_fork_server_keeps_no_descriptor_of_its_children(self):
        server = self.start_server()
        (itself,) = children(os.getpid())
        # The standard ones, the connection, the watch of its children, and those for forking.
        count = 5 + len(server._forks.descriptors())
        for _ in range(3):
            self.order(server).ready()
        # The server closes an order's descriptors a moment after the worker has begun.
        self.wait_for(lambda: len(os.listdir('/proc/%d/fd' % itself)) == count, 'descriptors are left')

    def test_the_fork_server_and_waiting_workers_end_with_the_zygote(self):
        server = self.start_server()
        (itself,) = children(os.getpid())
        worker = self.order(server)
        first = worker.ready()
        # Waits for the end of the server.
        server.close()
        self.assertIsNone(process.start_time(itself))
        # The worker waits for the holder of its pair.
        self.assertIsNotNone(process.start_time(first))
        worker.control.close()
        os.waitpid(first, 0)

    def test_the_end_of_the_fork_server_is_reported(self):
        server = self.start_server()
        (itself,) = children(os.getpid())
        os.kill(itself, signal.SIGKILL)
        self.assertIsNone(server.ended())


class Zygotes(Forked):
    """Tests the whole program, as the server starts it."""

    def start_zygote(self, **changed):
        config = {
            'name': 'rktest', 'runDir': os.path.join(self.base, 'zygote'), 'dataDir': os.path.join(self.base, 'data'), 'disable': [],
            'hostPaths': [], 'logBytes': 1000, 'logFiles': 3, 'spares': 2, 'idleExitMs': 0, 'network': None, 'resident': None,
        }
        config.update(changed)
        os.makedirs(config['runDir'], exist_ok=True)
        self.run_dir = config['runDir']
        # The zygote reports on descriptor 3 that it serves. All of its processes hold descriptor 1.
        command = ['sh', '-c', 'exec "$0" -B -I "$1" "$2" 3>&1', sys.executable, os.path.join(PACKAGE, '__main__.py'), ' ' * 100]
        self.words = os.path.join(self.base, 'words')
        with open(self.words, 'w') as words:
            zygote = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words)
        self.addCleanup(self.end_zygote, zygote)
        zygote.stdin.write(json.dumps(config).encode())
        zygote.stdin.close()
        self.assertEqual(zygote.stdout.readline(), b'{"state": "ready"}\n', self.said())
        return zygote

    def said(self):
        """Returns the text of the zygote's standard error."""
        with open(self.words) as source:
            return source.read()

    def end_zygote(self, zygote):
        zygote.kill()
        zygote.wait()
        zygote.stdout.close()

    def wait_for_all(self, zygote):
        """Returns when none of the zygote's processes holds the pipe."""
        self.assertEqual(zygote.stdout.read(), b'')

    def connect(self, kind):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(connection.close)
        connection.settimeout(SECONDS)
        connection.connect(os.path.join(self.run_dir, 'rktest.%s.sock' % kind))
        return connection

    def groups_of(self, zygote):
        found = []
        for place in self.plan.layers.places.values():
            # The last zygote removes the parent directory too.
            names = os.listdir(place.parent) if os.path.isdir(place.parent) else []
            found += [name for name in names if name.startswith('rktest-%d-' % zygote.pid)]
        return found

    def stats(self, control):
        frames.write_message(control, {'op': 'stats'})
        return frames.read_message(control)

    def test_a_zygote_that_is_killed_takes_its_fork_server_and_its_waiting_workers_along(self):
        zygote = self.start_zygote(idleExitMs=60000)
        control = self.connect('control')
        frames.read_message(control)
        self.wait_for(lambda: self.stats(control)['spares'] == 2, 'no worker gets ready')
        (server,) = children(zygote.pid)
        firsts = children(server)
        self.assertEqual(len(firsts), 2)
        zygote.kill()
        zygote.wait()
        self.wait_for_all(zygote)
        # The next zygote removes the residue.
        again = self.start_zygote(spares=0)
        self.wait_for_all(again)
        self.assertEqual((self.groups_of(zygote), os.listdir(os.path.join(self.run_dir, 'spares'))), ([], []))

    def test_a_start_that_arrives_later_gets_a_ready_worker(self):
        zygote = self.start_zygote(idleExitMs=60000)
        control = self.connect('control')
        frames.read_message(control)
        self.wait_for(lambda: self.stats(control)['spares'] == 2, 'no worker gets ready')
        (server,) = children(zygote.pid)
        before = sorted(children(server))
        later = self.connect('start-later')
        direct = self.connect('start')
        frames.write_message(direct, request(command={'kind': 'exec', 'argv': ['/bin/true']}))
        self.assertTrue(frames.read_message(direct)['ok'])
        self.wait_for(lambda: self.stats(control) == {'pid': zygote.pid, 'instances': 0, 'spares': 2, 'making': 0}, 'none takes its place')
        # One of the two first workers waits for this request.
        kept = [pid for pid in before if process.start_time(pid) is not None]
        self.assertEqual(len(kept), 1)
        frames.write_message(later, request(instanceId='later', command={'kind': 'exec', 'argv': ['/bin/sleep', '60']}))
        answer = frames.read_message(later)
        self.assertEqual((answer['ok'], answer['data']['pid']), (True, kept[0]))
        os.kill(kept[0], signal.SIGKILL)
        zygote.kill()
        zygote.wait()
        self.wait_for_all(zygote)
        # The next zygote removes the groups of these instances.
        again = self.start_zygote(spares=0)
        self.wait_for_all(again)
        self.assertEqual(self.groups_of(zygote), [])

    def test_a_start_that_does_not_come_leaves_nothing(self):
        zygote = self.start_zygote(idleExitMs=60000)
        control = self.connect('control')
        frames.read_message(control)
        self.wait_for(lambda: self.stats(control)['spares'] == 2, 'no worker gets ready')
        (server,) = children(zygote.pid)
        before = set(children(server))
        later = self.connect('start-later')
        self.wait_for(lambda: self.stats(control)['spares'] == 2, 'the worker counts no more')
        later.close()
        self.wait_for(lambda: len(before & set(children(server))) == 1 and self.stats(control)['spares'] == 2, 'none takes its place')
        later = self.connect('start-later')
        self.assertEqual(self.stats(control)['spares'], 2)
        # The end of the zygote ends the connection, even one that was not accepted yet.
        zygote.kill()
        zygote.wait()
        self.wait_for_all(zygote)
        try:
            self.assertEqual(later.recv(1), b'')
        except ConnectionResetError:
            pass
        again = self.start_zygote(spares=0)
        self.wait_for_all(again)
        self.assertEqual((self.groups_of(zygote), os.listdir(os.path.join(self.run_dir, 'spares'))), ([], []))

    def test_an_unneeded_zygote_leaves_nothing(self):
        zygote = self.start_zygote(idleExitMs=60000)
        control = self.connect('control')
        frames.read_message(control)
        self.wait_for(lambda: self.stats(control)['spares'] == 2, 'no worker gets ready')
        frames.write_message(control, {'op': 'retire'})
        self.wait_for_all(zygote)
        self.assertEqual(zygote.wait(), 0)
        self.assertEqual((self.groups_of(zygote), os.listdir(os.path.join(self.run_dir, 'spares'))), ([], []))

    def test_a_zygote_that_ends_while_making_workers_leaves_nothing(self):
        zygote = self.start_zygote()
        self.wait_for_all(zygote)
        self.assertEqual(zygote.wait(), 0)
        self.assertEqual((self.groups_of(zygote), os.listdir(os.path.join(self.run_dir, 'spares'))), ([], []))

    def test_a_zygote_ends_with_its_fork_server(self):
        zygote = self.start_zygote(idleExitMs=60000)
        (server,) = children(zygote.pid)
        os.kill(server, signal.SIGKILL)
        self.assertEqual(zygote.wait(), 1)
        self.wait_for_all(zygote)
        self.assertEqual(self.said(), 'the fork server has ended\n')

    def test_a_start_of_a_sandbox_that_cannot_be_made_is_refused_and_nothing_is_left(self):
        if not self.plan.layers.has('mount'):
            self.skipTest('this machine forbids mounts')
        shown = os.path.join(self.base, 'shown')
        os.mkdir(shown)
        zygote = self.start_zygote(spares=0, idleExitMs=60000, hostPaths=[shown])
        control = self.connect('control')
        frames.read_message(control)
        os.rmdir(shown)
        start = self.connect('start')
        frames.write_message(start, request())
        answer = frames.read_message(start)
        self.assertEqual((answer['ok'], answer['code'], answer['message']), (
            False, 'internal', 'the sandbox cannot be made: %s: %s' % (os.path.join(self.run_dir, 'root') + shown, NO_SUCH),
        ))
        # The zygote is notified too, in addition to the waiting caller.
        self.wait_for(lambda: self.said() != '', 'it says nothing')
        self.assertEqual(self.said(), answer['message'] + '\n')
        self.wait_for(lambda: self.groups_of(zygote) == [], 'groups are left')
        self.assertEqual(os.listdir(os.path.join(self.run_dir, 'spares')), [])
        # The next worker finds the path that it shows.
        os.mkdir(shown)
        start = self.connect('start')
        frames.write_message(start, request(command={'kind': 'exec', 'argv': ['/bin/true']}))
        self.assertTrue(frames.read_message(start)['ok'])


class Mirrors(unittest.TestCase):
    MIRRORS = {'forking': forking._Forking, 'run': forking._Run, 'order': forking._Order}

    def difference(self, name, fields):
        class Other(ctypes.Structure):
            _fields_ = fields

        with self.assertRaises(OSError) as failed:
            forking.check_layout('fork.so', forking.load_library(), dict(self.MIRRORS, **{name: Other}))
        return str(failed.exception)

    def test_every_structure_that_differs_from_the_library_is_refused(self):
        for name, mirror in self.MIRRORS.items():
            fields = list(mirror._fields_)
            for index in range(len(fields)):
                swapped = fields[:index] + fields[index + 1:] + [fields[index]]
                for other in (fields[:index] + fields[index + 1:], swapped, fields[:index] + [('more', ctypes.c_int)] + fields[index:]):
                    if other != fields:
                        self.assertIn('fork.so and rookery_zygote/forking.py differ in ' + name, self.difference(name, other))

    def test_networks_that_the_library_numbers_in_another_way_are_refused(self):
        before = forking.NONE
        forking.NONE = before + 1
        try:
            with self.assertRaises(OSError) as failed:
                forking.load_library()
        finally:
            forking.NONE = before
        self.assertIn('NO_NETWORK', str(failed.exception))


class Libraries(unittest.TestCase):
    def test_a_missing_library_is_reported_with_the_command_that_builds_it(self):
        before, native.syscalls.MACHINE = native.syscalls.MACHINE, 'none'
        try:
            with self.assertRaises(OSError) as missing:
                native.library()
        finally:
            native.syscalls.MACHINE = before
        self.assertIn('fork-none.so', str(missing.exception))
        self.assertIn('npm run build', str(missing.exception))


if __name__ == '__main__':
    unittest.main()
