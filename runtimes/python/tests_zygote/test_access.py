"""Tests the native program that serves accesses, each over a socket pair in a separate process."""
import os
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import tempfile
import unittest

from rookery_zygote import access, frames, identity, sandbox, syscalls, waiting

import connections
import starting
from connections import rest_of

SECONDS = 30
#: Kinds of frames, and the window of a stream, as in `src/sandbox/host/access-exec.ts`.
STDIN, STDOUT, STDERR = 0, 1, 2
STDIN_END, RESIZE, KILL, CREDIT, EXIT = 3, 4, 5, 6, 7
WINDOW = 262144


class Layers:
    """The layers of a sandbox whose processes already have the ids of their user."""

    @staticmethod
    def has(layer):
        return layer in ('user', 'cgroup.memory', 'cgroup.pids')


def serve(connection, kind, directory='/'):
    """Becomes the native program, which serves one access in this directory. Never returns."""
    request = {
        'instanceId': 'i', 'env': {}, 'command': {'kind': 'exec'}, 'workingDir': directory,
        'memoryMb': 0, 'maxOpenFiles': 1024, 'maxProcesses': 0,
    }
    made = sandbox.Sandbox(request, Layers())
    made.identity = identity.Identity('x', os.getuid(), os.getgid(), [], '/')
    server = access.Server()
    server.prepare()
    server.serve(connection, made, kind)


class Served(unittest.TestCase):
    """Base of tests. A child with the directory `self.directory` serves each request."""

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory, True)

    def serve(self, kind, request, prepare=None):
        here, there = socket.socketpair()
        child = os.fork()
        if child == 0:
            try:
                here.close()
                if prepare is not None:
                    prepare()
                serve(there, kind, self.directory)
            finally:
                os._exit(1)
        there.close()
        here.settimeout(SECONDS)
        self.child = child
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(here.close)
        frames.write_message(here, request)
        return here

    def path(self, name):
        return os.path.join(self.directory, name)

    def make(self, name, content=b''):
        with open(self.path(name), 'wb') as target:
            target.write(content)

    def content(self, name):
        with open(self.path(name), 'rb') as source:
            return source.read()


def hide_proc():
    """Mounts an empty file system over /proc, so that a file without a name cannot get one."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    starting.mount('none', '/', None, 0x44000)
    starting.mount('none', '/proc', 'tmpfs')


class Files(Served):
    def ask(self, prepare=None, **request):
        connection = self.serve('files', request, prepare)
        return connection, frames.read_message(connection)

    def test_a_range_of_a_file_comes_as_it_is_and_then_the_end(self):
        self.make('a', b'0123456789')
        connection, answer = self.ask(op='open', path='a')
        self.assertEqual((answer['ok'], answer['sizeBytes']), (True, 10))
        frames.write_message(connection, {'start': 2, 'end': 5})
        self.assertEqual(rest_of(connection), b'234')

    def test_a_range_beyond_the_end_is_cut(self):
        self.make('a', b'0123456789')
        connection, _answer = self.ask(op='open', path=self.path('a'))
        frames.write_message(connection, {'start': 8, 'end': 1 << 60})
        self.assertEqual(rest_of(connection), b'89')

    def write(self, connection, *parts):
        for part in parts:
            frames.write(connection, part)

    def test_a_file_takes_its_place_after_the_empty_frame_with_its_mode(self):
        self.make('a', b'old')
        connection, answer = self.ask(op='write', path='a', mode=0o640)
        self.assertTrue(answer['ok'])
        self.write(connection, b'one ', b'x' * 3000000)
        self.assertEqual(self.content('a'), b'old')
        self.write(connection, b'')
        self.assertEqual(frames.read_message(connection), {'ok': True, 'sizeBytes': 3000004})
        self.assertEqual(self.content('a'), b'one ' + b'x' * 3000000)
        self.assertEqual(stat.S_IMODE(os.stat(self.path('a')).st_mode), 0o640)
        self.assertEqual(os.listdir(self.directory), ['a'])

    def put(self, path, content=b'new', mode=None):
        connection, answer = self.ask(op='write', path=path, mode=mode)
        self.assertTrue(answer['ok'], answer)
        self.write(connection, content, b'')
        return frames.read_message(connection)

    def test_a_write_without_a_mode_keeps_that_of_the_file_and_drops_set_id_bits(self):
        self.make('script', b'old')
        os.chmod(self.path('script'), 0o4750)
        self.put('script')
        self.assertEqual(stat.S_IMODE(os.stat(self.path('script')).st_mode), 0o750)
        self.put('fresh')
        self.assertEqual(stat.S_IMODE(os.stat(self.path('fresh')).st_mode), 0o644)

    def test_a_write_to_links_changes_the_file_that_they_lead_to(self):
        os.mkdir(self.path('d'))
        self.make('d/target', b'old')
        os.symlink('target', self.path('d/second'))
        os.symlink('d/second', self.path('first'))
        os.symlink(self.path('d/fresh'), self.path('dangling'))
        self.put('first')
        self.put('dangling')
        self.assertEqual((self.content('d/target'), self.content('d/fresh')), (b'new', b'new'))
        self.assertEqual(os.readlink(self.path('first')), 'd/second')
        self.assertEqual(os.readlink(self.path('dangling')), self.path('d/fresh'))

    def test_a_write_to_a_path_that_is_no_file_is_refused_and_changes_nothing(self):
        os.mkfifo(self.path('pipe'))
        os.mkdir(self.path('directory'))
        os.symlink('pipe', self.path('link'))
        os.symlink('round', self.path('round'))
        os.symlink('missing/file', self.path('nowhere'))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path('socket'))
        for path, code, words in (
            ('pipe', 'invalid_request', 'pipe is a pipe, not a file'),
            ('link', 'invalid_request', 'link is a pipe, not a file'),
            ('socket', 'invalid_request', 'socket is a socket, not a file'),
            ('directory', 'invalid_request', 'directory is a directory, not a file'),
            ('/dev/null', 'invalid_request', '/dev/null is a device, not a file'),
            ('round', 'invalid_request', 'round cannot be written: Too many levels of symbolic links'),
            ('nowhere', 'not_found', 'the directory missing, where a symbolic link leads, does not exist in the sandbox'),
        ):
            _connection, answer = self.ask(op='write', path=path, mode=None)
            self.assertEqual((answer['code'], answer['message']), (code, words))
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path('pipe')).st_mode))
        self.assertEqual(sorted(os.listdir(self.directory)), ['directory', 'link', 'nowhere', 'pipe', 'round', 'socket'])

    def test_frames_may_come_in_any_pieces(self):
        connection, _answer = self.ask(op='write', path='a', mode=None)
        for byte in struct.pack('>I', 3) + b'abc' + struct.pack('>I', 1) + b'd' + struct.pack('>I', 0):
            connection.sendall(bytes([byte]))
        self.assertEqual(frames.read_message(connection)['sizeBytes'], 4)
        self.assertEqual(self.content('a'), b'abcd')

    def test_nothing_is_left_of_a_write_whose_caller_leaves(self):
        connection, _answer = self.ask(op='write', path='a', mode=None)
        self.write(connection, b'half')
        connection.shutdown(socket.SHUT_WR)
        self.assertEqual(rest_of(connection), b'')
        self.assertEqual(os.listdir(self.directory), [])

    @unittest.skipUnless(os.geteuid() == 0, 'hiding /proc needs root')
    def test_a_file_system_without_unnamed_files_uses_a_temporary_file(self):
        finished, _answer = self.ask(hide_proc, op='write', path='a', mode=None)
        broken, _answer = self.ask(hide_proc, op='write', path='b', mode=None)
        self.write(finished, b'whole', b'')
        self.assertEqual(frames.read_message(finished)['sizeBytes'], 5)
        self.write(broken, b'half')
        broken.shutdown(socket.SHUT_WR)
        self.assertEqual(rest_of(broken), b'')
        self.assertEqual(os.listdir(self.directory), ['a'])

    def test_a_list_is_in_the_order_of_paths_and_says_when_it_is_cut(self):
        os.mkdir(self.path('a'))
        for name in ('a/x', 'a-b', 'c'):
            self.make(name)
        _connection, answer = self.ask(op='list', path='.', maxDepth=2, maxEntries=10)
        names = [os.path.relpath(entry[0], os.path.realpath(self.directory)) for entry in answer['entries']]
        self.assertEqual((names, answer['truncated']), (['a', 'a-b', 'a/x', 'c'], False))
        _connection, answer = self.ask(op='list', path='.', maxDepth=2, maxEntries=3)
        self.assertEqual((len(answer['entries']), answer['truncated']), (3, True))

    def test_a_list_of_many_files_holds_no_more_than_it_may_answer(self):
        os.mkdir(self.path('d'))
        for number in range(300):
            self.make('%03d' % number)
            self.make('d/%03d' % number)
        _connection, answer = self.ask(op='list', path='.', maxDepth=2, maxEntries=5)
        names = [os.path.basename(entry[0]) for entry in answer['entries']]
        self.assertEqual(names, ['000', '001', '002', '003', '004'])
        self.assertTrue(answer['truncated'])

    def test_a_list_cut_in_a_directory_below_says_so(self):
        os.mkdir(self.path('d'))
        for number in range(9):
            self.make('d/%d' % number)
        _connection, answer = self.ask(op='list', path='.', maxDepth=2, maxEntries=9)
        self.assertEqual((len(answer['entries']), answer['truncated']), (9, True))
        _connection, answer = self.ask(op='list', path='.', maxDepth=2, maxEntries=10)
        self.assertEqual((len(answer['entries']), answer['truncated']), (10, False))

    def test_names_that_are_not_utf_8_go_both_ways(self):
        with open(os.path.join(os.fsencode(self.directory), b'a\xffb'), 'wb') as target:
            target.write(b'content')
        _connection, answer = self.ask(op='list', path='.', maxDepth=1, maxEntries=3)
        path = answer['entries'][0][0]
        self.assertTrue(path.endswith('/a\udcffb'))
        connection, answer = self.ask(op='open', path=path)
        frames.write_message(connection, {'start': 0, 'end': 7})
        self.assertEqual(rest_of(connection), b'content')

    def test_directories_are_made_with_their_mode(self):
        _connection, answer = self.ask(op='mkdir', path='a/b', mode=0o777, recursive=True)
        self.assertEqual(answer, {'ok': True})
        modes = [stat.S_IMODE(os.stat(self.path(name)).st_mode) for name in ('a', 'a/b')]
        self.assertEqual(modes, [0o755, 0o777])

    def test_refusals_have_a_code_and_name_the_path(self):
        self.make('file')
        os.mkfifo(self.path('pipe'))
        for code, request in (
            ('not_found', {'op': 'open', 'path': 'missing'}),
            ('invalid_request', {'op': 'open', 'path': 'pipe'}),
            ('invalid_request', {'op': 'open', 'path': '.'}),
            ('invalid_request', {'op': 'open', 'path': ''}),
            ('invalid_request', {'op': 'open', 'path': 'a\0b'}),
            ('invalid_request', {'op': 'open', 'path': 'a\ud800b'}),
            ('not_found', {'op': 'write', 'path': 'missing/a', 'mode': None}),
            ('invalid_request', {'op': 'write', 'path': 'a/', 'mode': None}),
            ('invalid_request', {'op': 'list', 'path': 'file', 'maxDepth': 1, 'maxEntries': 1}),
            ('already_exists', {'op': 'mkdir', 'path': 'file', 'mode': None, 'recursive': True}),
        ):
            _connection, answer = self.ask(**request)
            self.assertEqual((answer['ok'], answer['code']), (False, code), request)
            if code == 'not_found':
                self.assertIn(request['path'].split('/')[0], answer['message'])


class Dial(Served):
    def listen(self):
        listener = socket.socket()
        self.addCleanup(listener.close)
        listener.bind(('127.0.0.1', 0))
        listener.listen(1)
        listener.settimeout(SECONDS)
        return listener, listener.getsockname()[1]

    def test_bytes_and_ends_pass_both_ways(self):
        listener, port = self.listen()
        here = self.serve('dial', {'port': port})
        self.assertEqual(frames.read_message(here), {'ok': True})
        there, _address = listener.accept()
        self.addCleanup(there.close)
        here.sendall(b'question')
        here.shutdown(socket.SHUT_WR)
        self.assertEqual(rest_of(there), b'question')
        there.sendall(b'answer')
        there.close()
        self.assertEqual(rest_of(here), b'answer')

    def test_a_caller_that_leaves_is_the_end_of_the_connection(self):
        here, there = self.dial()
        here.close()
        try:
            while True:
                there.sendall(b'x' * 65536)
        except socket.timeout:
            self.fail('nobody ended the connection')
        except OSError:
            pass

    def is_waiting(self):
        """Returns True if the passing process sleeps. A busy loop never sleeps."""
        with open('/proc/%d/stat' % self.child) as source:
            return source.read().rpartition(')')[2].split()[0] == 'S'

    def dial(self):
        listener, port = self.listen()
        here = self.serve('dial', {'port': port})
        frames.read_message(here)
        there, _address = listener.accept()
        self.addCleanup(there.close)
        there.settimeout(SECONDS)
        return here, there

    def fill(self, here):
        """Sends until the passing process waits for the port although more data can be read."""
        connections.fill(here, lambda: self.assertTrue(waiting.until(self.is_waiting, SECONDS, 0.005)))
        here.settimeout(SECONDS)

    def test_a_caller_that_leaves_is_the_end_although_the_port_never_reads(self):
        here, there = self.dial()
        self.fill(here)
        here.close()
        # The port gets an error without having read anything.
        watch = select.poll()
        watch.register(there, 0)
        self.assertEqual(len(watch.poll(1000 * SECONDS)), 1)

    def test_bytes_sent_before_the_caller_left_reach_the_port(self):
        here, there = self.dial()
        os.kill(self.child, signal.SIGSTOP)
        here.sendall(b'last words')
        here.close()
        os.kill(self.child, signal.SIGCONT)
        self.assertEqual(there.recv(100), b'last words')

    def test_a_dial_uses_no_processor_while_a_slow_caller_reads_after_the_port_closed(self):
        here, there = self.dial()
        here.shutdown(socket.SHUT_WR)
        self.assertEqual(there.recv(1), b'')
        answer = b'x' * 600000
        there.sendall(answer)
        there.close()
        self.assertTrue(waiting.until(self.is_waiting, SECONDS, 0.005), 'it looks again and again')
        self.assertEqual(rest_of(here), answer)

    def test_a_question_comes_whole_to_a_port_that_has_ended_its_own_side(self):
        here, there = self.dial()
        there.shutdown(socket.SHUT_WR)
        self.assertEqual(here.recv(1), b'')
        self.fill(here)
        here.close()
        self.assertTrue(waiting.until(self.is_waiting, SECONDS, 0.005), 'it looks again and again')
        self.assertGreater(len(rest_of(there)), 65536)

    def test_nothing_that_listens_is_a_refusal(self):
        listener, port = self.listen()
        listener.close()
        here = self.serve('dial', {'port': port})
        answer = frames.read_message(here)
        self.assertEqual((answer['code'], answer['message']), ('unavailable', 'nothing listens on port %d' % port))


class Command(unittest.TestCase):
    def refused(self, limit, *messages):
        """Returns the answer when at most `limit` descriptors may be open."""
        here, there = socket.socketpair()
        self.addCleanup(here.close)
        here.settimeout(SECONDS)
        child = os.fork()
        if child == 0:
            try:
                os.dup2(there.fileno(), 3)
                connection = socket.socket(fileno=3)
                execute = os.execve

                def execute_within_limit(*arguments):
                    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
                    execute(*arguments)

                os.execve = execute_within_limit
                serve(connection, 'command')
            finally:
                os._exit(1)
        there.close()
        self.addCleanup(os.waitpid, child, 0)
        frames.write(here, *messages)
        return frames.read_message(here)

    def test_a_command_without_pipes_and_an_invalid_request_are_refused(self):
        self.assertEqual(
            self.refused(5, b'{"argv": ["true"], "env": {}, "stdin": ""}'),
            {'ok': False, 'code': 'unavailable', 'message': 'no pipes can be opened inside: Too many open files'},
        )
        for request in (b'no JSON', b'[]', b'{}'):
            answer = self.refused(64, request)
            self.assertEqual((answer['ok'], answer['code']), (False, 'internal'))
            self.assertIn('the request for a command must ', answer['message'])


class Stream(Served):
    def open(self, script, terminal=None, env=None):
        request = {'argv': ['/bin/sh', '-c', script], 'env': env or {}, 'workingDir': self.directory, 'terminal': terminal}
        connection = self.serve('exec', request)
        self.assertEqual(frames.read_message(connection), {'ok': True})
        return connection

    @staticmethod
    def send(connection, kind, payload=b''):
        frames.write(connection, bytes([kind]) + payload)

    def end_of(self, connection):
        """Returns everything until the end as `({stream: bytes}, code)`. Grants credit meanwhile."""
        outputs = {STDOUT: b'', STDERR: b''}
        while True:
            frame = frames.read(connection)
            self.assertIsNotNone(frame)
            kind, payload = frame[0], frame[1:]
            if kind == EXIT:
                return outputs, struct.unpack('>i', payload)[0]
            if kind in outputs:
                outputs[kind] += payload
                self.send(connection, CREDIT, struct.pack('>BI', kind, len(payload)))

    def test_input_outputs_and_the_code(self):
        connection = self.open('cat; echo "$WORD" >&2; exit 7', env={'WORD': 'err'})
        self.send(connection, STDIN, b'typed')
        self.send(connection, STDIN_END)
        self.assertEqual(self.end_of(connection), ({STDOUT: b'typed', STDERR: b'err\n'}, 7))

    def test_output_stops_at_the_window_without_credit(self):
        connection = self.open('head -c 1000000 /dev/zero')
        size = 0
        while size < WINDOW:
            frame = frames.read(connection)
            self.assertEqual(frame[0], STDOUT)
            size += len(frame) - 1
        self.assertEqual(size, WINDOW)
        self.send(connection, KILL)
        self.send(connection, CREDIT, struct.pack('>BI', STDOUT, size))
        _outputs, code = self.end_of(connection)
        self.assertEqual(code, 128 + signal.SIGKILL)

    def test_credit_comes_for_input_that_was_taken(self):
        connection = self.open('cat >/dev/null')
        self.send(connection, STDIN, b'x' * WINDOW)
        credit = 0
        while credit < WINDOW:
            frame = frames.read(connection)
            self.assertEqual(frame[0], CREDIT)
            credit += struct.unpack('>BI', frame[1:])[1]
        self.send(connection, STDIN_END)
        self.assertEqual(self.end_of(connection)[1], 0)

    def test_a_terminal_has_its_size_and_keys(self):
        connection = self.open('stty size; read word; stty size; exec cat', {'columns': 91, 'rows': 17}, dict(os.environ))
        seen = b''
        while b'\n' not in seen:
            frame = frames.read(connection)
            seen += frame[1:]
        self.assertEqual(seen.split(), [b'17', b'91'])
        self.send(connection, RESIZE, struct.pack('>HH', 50, 20))
        self.send(connection, STDIN, b'word\n')
        self.send(connection, STDIN, b'\x04')
        outputs, code = self.end_of(connection)
        self.assertIn(b'20 50', outputs[STDOUT])
        self.assertEqual(code, 0)

    def test_the_command_ends_when_its_caller_leaves(self):
        pipe, writer = os.pipe()
        connection = self.serve(
            'exec', {'argv': ['/bin/sh', '-c', 'exec sleep 600'], 'env': {}, 'workingDir': '/', 'terminal': None}
        )
        os.close(writer)
        self.assertEqual(frames.read_message(connection), {'ok': True})
        connection.close()
        # The server of the connection holds the other end, and ends only after it has ended the command.
        self.assertEqual(os.read(pipe, 1), b'')
        os.close(pipe)

    def test_a_missing_program_ends_with_127_and_a_log_line(self):
        connection = self.serve('exec', {'argv': ['no-such'], 'env': {}, 'workingDir': '/', 'terminal': None})
        frames.read_message(connection)
        outputs, code = self.end_of(connection)
        self.assertEqual(code, 127)
        self.assertIn(b'no-such', outputs[STDERR])
