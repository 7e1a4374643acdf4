"""Tests the parts of a pod's manager that need no control plane."""
import hashlib
import io
import os
import resource
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

from rookery_pod import cleaning, measures, proof, put
from rookery_zygote import frames
from rookery_zygote.failure import Refusal

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BOOT = 'import sys; sys.path.insert(0, sys.argv.pop(1)); from rookery_pod import manager; manager.main()'
SECONDS = 30
MOST_UNPROVEN = 32


class InDirectory(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory, True)
        # Makes read-only files removable for an ordinary user who owns them.
        self.addCleanup(subprocess.call, ['chmod', '-R', 'u+rwX', self.directory])

    def path(self, *names):
        return os.path.join(self.directory, *names)


class Connections(InDirectory):
    """Tests connections to a manager that runs as a process of this machine."""

    def setUp(self):
        super(Connections, self).setUp()
        run, secret = self.path('run'), self.path('secret')
        os.mkdir(run)
        os.mkdir(self.path('writable'))
        with open(secret, 'wb') as out:
            out.write(b's' * 32)
        install = [os.path.join(HERE, 'rookery_pod', 'install.py'), '--source', '', '--run', run, '--secret', secret]
        subprocess.check_call([sys.executable, '-IB'] + install, env=dict(os.environ, ROOKERY_POD_UID='uid'))
        with open(os.path.join(run, 'tls.crt')) as source:
            self.hash = hashlib.sha256(ssl.PEM_cert_to_DER_cert(source.read())).digest()
        self.key = proof.key_of(b's' * 32, 'uid')
        options = ['--run', run, '--listen', '127.0.0.1:0', '--writable', self.path('writable')]
        self.manager = subprocess.Popen([sys.executable, '-IB', '-c', BOOT, HERE] + options, stdout=subprocess.PIPE)
        self.addCleanup(self.end)
        self.port = int(self.manager.stdout.readline())
        self.run_directory = run

    def end(self):
        self.manager.terminate()
        self.manager.wait()
        self.manager.stdout.close()

    def tls(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = context.wrap_socket(socket.create_connection(('127.0.0.1', self.port), SECONDS))
        self.addCleanup(connection.close)
        return connection

    def greeted(self):
        """Returns a connection, the client's proof for it, and the facts of the proof."""
        connection = self.tls()
        mine = proof.nonce()
        connection.sendall(mine)
        answer = b''
        while len(answer) < proof.NONCE_BYTES + proof.PROOF_BYTES:
            answer += connection.recv(1024)
        facts = (mine, answer[:proof.NONCE_BYTES], self.hash)
        self.assertTrue(proof.is_proof(answer[proof.NONCE_BYTES:], self.key, proof.SERVER, *facts))
        return connection, proof.prove(self.key, proof.CLIENT, *facts), facts

    def ask(self, message):
        connection, mine, _facts = self.greeted()
        connection.sendall(mine)
        frames.write_message(connection, message)
        return frames.read_message(connection)

    def test_the_keys_are_gone_as_soon_as_it_can_be_connected_to(self):
        self.assertEqual(os.listdir(self.run_directory), ['sockets'])

    def test_a_connection_that_proves_the_key_is_served(self):
        self.assertEqual(self.ask({'op': 'wait'})['code'], 'failed_precondition')

    def test_a_wrong_proof_ends_the_connection_before_its_first_request(self):
        connection, mine, facts = self.greeted()
        for wrong in (os.urandom(proof.PROOF_BYTES), proof.prove(self.key, proof.SERVER, *facts)):
            connection, mine, facts = self.greeted()
            connection.sendall(wrong)
            self.assertEqual(self.rest_of(connection, {'op': 'stats'}), b'')

    def test_the_proof_of_a_connection_is_invalid_on_another(self):
        _connection, mine, _facts = self.greeted()
        other, _own, _facts = self.greeted()
        other.sendall(mine)
        self.assertEqual(self.rest_of(other, {'op': 'stats'}), b'')

    def rest_of(self, connection, message):
        try:
            frames.write_message(connection, message)
            return connection.recv(1024)
        except OSError:
            return b''

    def test_connections_without_a_proof_are_limited_and_the_oldest_is_closed_first(self):
        silent = [socket.create_connection(('127.0.0.1', self.port), SECONDS) for _ in range(MOST_UNPROVEN)]
        for one in silent:
            self.addCleanup(one.close)
        self.assertEqual(self.ask({'op': 'wait'})['code'], 'failed_precondition')
        self.assertEqual(silent[0].recv(1), b'')

    def test_a_frame_that_is_too_long_or_invalid_ends_only_its_connection(self):
        for sent in (b'\xff\xff\xff\xff', frames.packed(b'[1'), frames.packed(b'[]'), frames.packed(b'{"op": "start"}'), frames.packed(b'{"op": "no"}')):
            connection, mine, _facts = self.greeted()
            connection.sendall(mine + sent)
            try:
                answer = frames.read_message(connection)
                self.assertTrue(answer is None or not answer['ok'])
            except OSError:
                pass
        self.assertEqual(self.ask({'op': 'wait'})['code'], 'failed_precondition')

    def test_both_directions_of_a_connection_end_for_themselves(self):
        order = {
            'op': 'start', 'instanceId': 'i', 'command': {'kind': 'exec', 'argv': ['/bin/sleep', '1000']}, 'secret': 's', 'user': '',
            'env': {}, 'ofImage': False, 'image': '', 'workingDir': '/', 'maxOpenFiles': 1024, 'endsWithInstance': False,
        }
        self.assertTrue(self.ask(order)['ok'])
        server = socket.socket()
        self.addCleanup(server.close)
        server.bind(('127.0.0.1', 0))
        server.listen(1)
        server.settimeout(SECONDS)
        connection, mine, _facts = self.greeted()
        connection.sendall(mine)
        frames.write_message(connection, {'op': 'access', 'way': 'dial'})
        frames.write_message(connection, {'port': server.getsockname()[1]})
        inside, _address = server.accept()
        self.addCleanup(inside.close)
        inside.settimeout(SECONDS)
        self.assertEqual(frames.read_message(connection), {'ok': True})
        # The inside ends its output and continues to read.
        inside.sendall(b'said')
        inside.shutdown(socket.SHUT_WR)
        self.assertEqual(connection.recv(4), b'said')
        self.assertEqual(connection.recv(4), b'')
        sent = os.urandom(3000000)
        connection.sendall(sent)
        received = b''
        while len(received) < len(sent):
            received += inside.recv(1 << 20)
        self.assertEqual(received, sent)


class Cleaning(InDirectory):
    def test_cleaning_removes_everything_from_a_directory(self):
        outside = self.path('outside')
        os.makedirs(outside)
        with open(os.path.join(outside, 'stays'), 'w') as out:
            out.write('x')
        top = self.path('top')
        os.mkdir(top)
        descriptor = os.open(top, os.O_RDONLY)
        # Makes a path that is longer than the limit and deeper than the stack.
        for _ in range(2000):
            os.mkdir('d' * 20, dir_fd=descriptor)
            inner = os.open('d' * 20, os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        os.close(descriptor)
        os.symlink(outside, os.path.join(top, 'link'))
        os.mkfifo(os.path.join(top, 'pipe'))
        os.makedirs(os.path.join(top, 'closed', 'inner'))
        with open(os.path.join(top, 'closed', 'inner', 'file'), 'w'):
            pass
        os.chmod(os.path.join(top, 'closed', 'inner'), 0)
        os.chmod(os.path.join(top, 'closed'), 0)
        os.mkdir(os.path.join(top, '.rookery-1'))
        with open(os.path.join(top, '.rookery-2'), 'w'):
            pass
        cleaning.clean([top])
        self.assertEqual(os.listdir(top), [])
        self.assertEqual(os.listdir(outside), ['stays'])

    def test_a_mount_inside_a_writable_place_is_a_place_of_its_own(self):
        os.makedirs(self.path('top', 'a', 'mounted'))
        cleaning.clean([self.path('top'), self.path('top', 'a', 'mounted')])
        self.assertTrue(os.path.isdir(self.path('top', 'a', 'mounted')))

    def test_a_file_that_can_be_written_to_is_no_clean_place(self):
        with open(self.path('file'), 'w'):
            pass
        with self.assertRaises(cleaning.Dirty):
            cleaning.clean([self.path('file')])

    def test_where_the_root_can_be_written_to_nothing_is_emptied(self):
        with self.assertRaises(cleaning.Dirty):
            cleaning.find_places()

    def test_changed_limits_are_detected(self):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                bearing = cleaning.Bearing()
                bearing.check()
                soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
                try:
                    bearing.check()
                except cleaning.Dirty:
                    code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class Put(InDirectory):
    def put(self, entries, readonly=False, tail=b''):
        """Returns the last answer to an archive of these entries."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode='w') as out:
            for name, kind, content in entries:
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode, entry.mtime = kind, 0o755, 1000
                if kind == tarfile.SYMTYPE:
                    entry.linkname = content
                    out.addfile(entry)
                else:
                    entry.size = len(content)
                    out.addfile(entry, io.BytesIO(content))
        here, there = socket.socketpair()
        child = os.fork()
        if child == 0:
            try:
                here.close()
                put.serve(there, {'target': self.path('code'), 'readonly': readonly})
            except Refusal as refusal:
                frames.write_message(there, {'ok': False, 'code': refusal.code, 'message': refusal.message})
            finally:
                os._exit(0)
        there.close()
        here.settimeout(SECONDS)
        self.addCleanup(here.close)
        self.addCleanup(os.waitpid, child, 0)
        self.assertEqual(frames.read_message(here), {'ok': True})
        try:
            frames.write(here, archive.getvalue() + tail, b'')
        except OSError:
            # The archive was refused while it was sent.
            pass
        return frames.read_message(here)

    def test_files_links_and_modes_arrive(self):
        entries = [('a/b', tarfile.REGTYPE, b'content'), ('link', tarfile.SYMTYPE, '/etc/passwd'), ('empty', tarfile.REGTYPE, b'')]
        self.assertTrue(self.put(entries, readonly=True)['ok'])
        with open(self.path('code', 'a', 'b'), 'rb') as source:
            self.assertEqual(source.read(), b'content')
        self.assertEqual(os.readlink(self.path('code', 'link')), '/etc/passwd')
        about = os.stat(self.path('code', 'a', 'b'))
        self.assertEqual((stat.S_IMODE(about.st_mode), int(about.st_mtime)), (0o555, 1000))

    def test_a_name_that_leads_out_is_refused(self):
        for name in ('../outside', 'a/../../outside', '/../outside'):
            self.assertEqual(self.put([(name, tarfile.REGTYPE, b'x')])['code'], 'invalid_request')
        self.assertEqual(os.listdir(self.directory), ['code'])

    def test_a_name_below_a_link_is_refused(self):
        entries = [('out', tarfile.SYMTYPE, self.directory), ('out/file', tarfile.REGTYPE, b'x')]
        self.assertEqual(self.put(entries)['code'], 'invalid_request')
        self.assertEqual(os.listdir(self.directory), ['code'])

    def test_an_archive_makes_no_device(self):
        self.assertTrue(self.put([('device', tarfile.CHRTYPE, b''), ('pipe', tarfile.FIFOTYPE, b'')])['ok'])
        self.assertEqual(os.listdir(self.path('code')), [])

    @unittest.skipUnless(os.geteuid() == 0, 'needs root: what it wrote is read-only')
    def test_a_second_time_takes_the_place_of_the_first(self):
        self.put([('old/file', tarfile.REGTYPE, b'x')], readonly=True)
        self.assertTrue(self.put([('new', tarfile.REGTYPE, b'x')])['ok'])
        self.assertEqual(os.listdir(self.path('code')), ['new'])


class MeasuresOfGroups(InDirectory):
    def write(self, name, text):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as out:
            out.write(text)

    def test_the_first_interface_is_read(self):
        self.write('memory/memory.usage_in_bytes', '1000\n')
        self.write('memory/memory.stat', 'inactive_file 1\ntotal_inactive_file 200\n')
        self.write('cpuacct/cpuacct.usage', '5000000\n')
        self.write('memory/memory.oom_control', 'oom_kill_disable 0\nunder_oom 0\noom_kill 2\n')
        self.check('memory/memory.oom_control', 'oom_kill 3\n')

    def test_the_second_interface_is_read(self):
        self.write('cgroup.controllers', 'memory\n')
        self.write('memory.current', '1000\n')
        self.write('memory.stat', 'inactive_file 200\n')
        self.write('cpu.stat', 'usage_usec 5000\n')
        self.write('memory.events', 'oom 1\noom_kill 2\n')
        self.check('memory.events', 'oom_kill 3\n')

    def check(self, kills, more):
        found = measures.Measures(self.directory)
        self.assertEqual((found.stats()['memoryBytes'], found.stats()['cpuMicros']), (800, 5000))
        found.begin()
        self.assertEqual(found.stats()['cpuMicros'], 0)
        self.assertFalse(found.has_killed())
        self.write(kills, more)
        self.assertTrue(found.has_killed())

    def test_usage_without_control_groups_comes_from_the_processes(self):
        child = subprocess.Popen(['sleep', '1000'])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        found = measures.Measures(self.directory)
        found.begin()
        deadline = time.monotonic() + SECONDS
        while found.stats()['memoryBytes'] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertGreater(found.stats()['memoryBytes'], 0)
        self.assertGreaterEqual(found.stats()['processes'], 1)
        self.assertFalse(found.has_killed())


if __name__ == '__main__':
    unittest.main()
