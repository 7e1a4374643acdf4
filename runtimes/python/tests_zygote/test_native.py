"""Tests the native program that becomes init: its log, its end, and its answers."""
import array
import fcntl
import json
import os
import re
import select
import signal
import socket
import stat
import struct
import termios
import threading
import time
import unittest

from rookery_zygote import frames, native, process, waiting

import connections
from connections import rest_of
from starting import SECONDS, Starting


class Started(Starting):
    """Base of tests with a running instance."""

    def start(self, log_bytes=1000):
        self.begin(logBytes=log_bytes)
        self.assertTrue(self.ask()['ok'])

    def write(self, *pieces):
        """Writes output. Returns when init has read all of it."""
        left = array.array('i', [0])
        for piece in pieces:
            os.write(self.output, piece)
        deadline = time.monotonic() + SECONDS
        while fcntl.ioctl(self.output, termios.FIONREAD, left) == 0 and left[0] > 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)

    def told_end(self):
        told = frames.read_message(self.connection)['exit']
        # In this test no state file exists that could hold the end.
        with open(os.path.join(self.directory, 'exit.json')) as source:
            self.assertEqual(json.load(source), told)
        return told


class Copy(unittest.TestCase):
    def test_the_program_of_init_is_sealed_and_unreadable(self):
        program = native.Program()
        self.addCleanup(os.close, program.fileno())
        self.assertEqual(stat.S_IMODE(os.fstat(program.fileno()).st_mode), 0o111)
        with self.assertRaises(OSError):
            os.ftruncate(program.fileno(), 0)
        with self.assertRaises(OSError):
            os.pwrite(program.fileno(), b'x', 0)


class Log(Started):
    def files(self):
        found = []
        for name in ('log.2', 'log.1', 'log'):
            path = os.path.join(self.directory, name)
            if os.path.isfile(path):
                with open(path, 'rb') as source:
                    found.append(source.read())
        return found

    def lines(self):
        text = b''
        for content in self.files():
            if text and re.match(br'\d{13}\+', content):
                content = content[14:]
            text += content
        return [line[14:] for line in text.split(b'\n') if line]

    def logged(self, *pieces):
        self.write(*pieces)
        self.end()

    def test_each_line_has_its_time(self):
        self.start()
        self.logged(b'one\ntwo\n')
        self.assertTrue(re.match(br'^\d{13} one\n\d{13} two\n$', self.files()[0]))

    def test_a_log_without_output_has_no_file(self):
        self.start()
        self.end()
        self.assertEqual(self.files(), [])

    def test_a_file_that_could_not_be_made_is_made_with_a_later_output(self):
        path = os.path.join(self.directory, 'log')
        self.start()
        os.mkdir(path)
        self.write(b'lost\n')
        # Requests are answered in order, so init has tried by then.
        connection = self.connect()
        frames.write_message(connection, {'op': 'stats'})
        frames.read_message(connection)
        os.rmdir(path)
        self.logged(b'kept\n')
        self.assertEqual(self.lines(), [b'kept'])

    def test_a_line_in_pieces_has_one_time(self):
        self.start()
        for piece in (b'a', b'b', b'c\n', b'd\n', b'\n'):
            self.write(piece)
        self.end()
        self.assertTrue(re.match(br'^\d{13} abc\n\d{13} d\n\d{13} \n$', self.files()[0]))

    def test_a_log_rotates_and_keeps_the_newest_files(self):
        self.start()
        # Writes one line after the other, because the space is checked for each read.
        for number in range(500):
            self.write(b'line %03d\n' % number)
        self.end()
        lines = self.lines()
        self.assertEqual(len(self.files()), 3)
        self.assertEqual(lines, [b'line %03d' % number for number in range(500 - len(lines), 500)])
        self.assertTrue(all(len(content) < 1100 for content in self.files()))

    def test_a_chunk_larger_than_all_files_leaves_its_end(self):
        self.start()
        self.logged(b''.join(b'line %04d\n' % number for number in range(3000)))
        self.assertEqual(self.lines()[-1], b'line 2999')
        self.assertEqual(len(self.files()), 3)

    def test_a_line_longer_than_a_file_continues_in_the_next_file(self):
        self.start(100000)
        self.logged(*([b'x' * 50000] * 5 + [b'\nend\n']))
        files = self.files()
        self.assertEqual(len(files), 3)
        self.assertTrue(re.match(br'\d{13}\+x', files[1]))
        self.assertEqual(self.lines(), [b'x' * 250000, b'end'])


class Ends(Started):
    def test_the_exit_code_of_the_users_process_is_reported_and_stored(self):
        self.start()
        os.write(self.code, b'\7')
        told = self.told_end()
        self.assertEqual((told['code'], told['signal'], told['oomKilled']), (7, None, False))
        self.assertLess(abs(told['atMs'] / 1000.0 - time.time()), SECONDS)

    def test_a_stop_signals_the_users_process_and_reports_its_cause(self):
        self.start()
        connection = self.connect()
        frames.write_message(connection, {'op': 'stop', 'graceMs': 60000, 'cause': 'a "cause" — \ud83d\ude00'})
        told = self.told_end()
        self.assertEqual((told['code'], told['signal'], told['cause']), (None, 'SIGTERM', 'a "cause" — \U0001f600'))
        self.assertEqual(frames.read_message(connection), {'exit': told})

    def test_the_title_of_init_shows_its_name_and_no_orders(self):
        self.start()
        frames.write_message(self.connection, {'op': 'stats'})
        self.assertGreater(frames.read_message(self.connection)['processes'], 1)
        with open('/proc/%d/cmdline' % self.init, 'rb') as source:
            self.assertEqual(source.read().rstrip(b'\0'), b'rookery: init one')


class Hostile(Started):
    def answer_of(self, data):
        connection = self.connect()
        connection.sendall(data)
        parts = []
        try:
            while True:
                part = connection.recv(65536)
                if not part:
                    return b''.join(parts)
                parts.append(part)
        except ConnectionResetError:
            return b''.join(parts)

    def test_an_invalid_request_ends_only_its_connection(self):
        self.start()
        frame = frames.packed
        for data in (
            b'\xff\xff\xff\xff', frame(b''), frame(b'{'), frame(b'[]'), frame(b'"op"'), frame(b'{"op":"nothing"}'),
            frame(b'{"op":1}'), frame(b'{"op"}'), frame(b'{1:2}'), frame(b'{"a":' * 1000), frame(b'[' * 60000),
            frame(b'{"op":"\\u12'), frame(b'{"op":"\\ud800\\u"}'), frame(b'{"op":"\\x"}'), frame(b'{"op":tru'), frame(b'\0' * 100),
        ):
            self.assertEqual(self.answer_of(data), b'', data[:40])
        os.write(self.code, b'\3')
        self.assertEqual(self.told_end()['code'], 3)

    def test_a_way_that_there_is_not_is_refused_in_words(self):
        self.start()
        answer = self.answer_of(frames.packed(b'{"op":"access","way":"no\\nne"}'))
        self.assertEqual(
            json.loads(answer[4:].decode()),
            {'ok': False, 'code': 'internal', 'message': 'a sandbox has no access of kind no\nne'},
        )

    def test_a_partial_request_delays_other_requests_only_briefly(self):
        self.start()
        half = self.connect()
        half.sendall(struct.pack('>I', 100) + b'{')
        other = self.connect()
        frames.write_message(other, {'op': 'stats'})
        self.assertIn('processes', frames.read_message(other))
        self.assertEqual(half.recv(1), b'')


class Ways(Started):
    """Tests accesses. A child of init serves each of them."""

    def open(self, way):
        connection = self.connect()
        frames.write_message(connection, {'op': 'access', 'way': way})
        return connection

    def child(self, known=()):
        """Returns the pid of the child that is not among the known ones."""
        found = []
        self.wait_for(lambda: found.extend(set(process.descendants(self.init)).difference(known)) or found, 'nobody serves it')
        self.assertEqual(len(found), 1)
        return found[0]

    def wait_for(self, is_so, what):
        self.assertTrue(waiting.until(is_so, SECONDS, 0.005), what)

    @staticmethod
    def text_of(pid, name):
        with open('/proc/%s/%s' % (pid, name)) as source:
            return source.read()

    @unittest.skipUnless(os.geteuid() == 0, 'needs the right to become somebody else')
    def test_an_access_process_is_the_first_out_of_memory_victim_and_closed_to_its_user(self):
        self.begin(setsIds=True)
        self.assertTrue(self.ask(user='54321')['ok'])
        known = process.descendants(self.init)
        connection = self.open('files')
        pid = self.child(known)
        self.wait_for(lambda: '\nUid:\t54321\t' in self.text_of(pid, 'status'), 'it does not become the user')
        self.assertEqual(self.text_of(pid, 'oom_score_adj').strip(), '1000')
        self.assertEqual(self.text_of(self.init, 'oom_score_adj'), self.text_of('self', 'oom_score_adj'))
        # The files in /proc belong to root and not to the user.
        self.assertEqual(os.stat('/proc/%d/environ' % pid).st_uid, 0)
        connection.close()


class Dial(Ways):
    def setUp(self):
        super(Dial, self).setUp()
        self.port = socket.socket()
        self.addCleanup(self.port.close)
        self.port.bind(('127.0.0.1', 0))
        self.port.listen(1)
        self.port.settimeout(SECONDS)

    def dial(self):
        """Returns the connection of a caller, that of the port, and the pid of the child between them."""
        self.start()
        known = process.descendants(self.init)
        caller = self.open('dial')
        frames.write_message(caller, {'port': self.port.getsockname()[1]})
        self.assertEqual(frames.read_message(caller), {'ok': True})
        there, _address = self.port.accept()
        self.addCleanup(there.close)
        there.settimeout(SECONDS)
        return caller, there, self.child(known)

    def has_ended(self, pid):
        # Init, the parent, reaps the child a moment later.
        return pid not in process.descendants(self.init)

    def fill(self, caller, pid):
        """Sends until the child waits for the port although more data can be read."""
        connections.fill(caller, lambda: self.wait_for(lambda: self.is_waiting(pid), 'it does not wait'))
        caller.settimeout(SECONDS)

    def is_waiting(self, pid):
        """Returns True if the process sleeps. A busy loop never sleeps."""
        return self.text_of(pid, 'stat').rpartition(')')[2].split()[0] == 'S'

    def test_a_dial_ends_with_its_caller_although_the_port_never_reads(self):
        caller, there, pid = self.dial()
        self.fill(caller, pid)
        caller.close()
        self.wait_for(lambda: self.has_ended(pid), 'it outlives its caller')
        # The end is an error for the port.
        watch = select.poll()
        watch.register(there, 0)
        self.assertEqual(len(watch.poll(1000 * SECONDS)), 1)

    def test_bytes_sent_before_the_caller_left_reach_the_port(self):
        caller, there, pid = self.dial()
        os.kill(pid, signal.SIGSTOP)
        caller.sendall(b'last words')
        caller.close()
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(there.recv(100), b'last words')
        self.wait_for(lambda: self.has_ended(pid), 'it outlives its caller')

    def test_an_answer_comes_whole_to_a_caller_that_has_ended_its_own_side(self):
        caller, there, pid = self.dial()
        caller.sendall(b'question')
        caller.shutdown(socket.SHUT_WR)
        self.assertEqual(rest_of(there), b'question')
        answer = b'answer' * 500000
        answering = threading.Thread(target=lambda: (there.sendall(answer), there.close()))
        answering.start()
        self.assertEqual(rest_of(caller), answer)
        answering.join()
        self.wait_for(lambda: self.has_ended(pid), 'it outlives both sides')

    def test_a_dial_uses_no_processor_while_a_slow_caller_reads_after_the_port_closed(self):
        caller, there, pid = self.dial()
        caller.shutdown(socket.SHUT_WR)
        self.assertEqual(there.recv(1), b'')
        answer = b'x' * 600000
        there.sendall(answer)
        there.close()
        self.wait_for(lambda: self.is_waiting(pid), 'it looks again and again')
        self.assertEqual(rest_of(caller), answer)
        self.wait_for(lambda: self.has_ended(pid), 'it outlives both sides')

    def test_a_question_comes_whole_to_a_port_that_has_ended_its_own_side(self):
        caller, there, pid = self.dial()
        there.shutdown(socket.SHUT_WR)
        self.assertEqual(caller.recv(1), b'')
        self.fill(caller, pid)
        caller.close()
        # The rest can still be read.
        self.wait_for(lambda: self.is_waiting(pid), 'it looks again and again')
        self.assertGreater(len(rest_of(there)), 65536)
        self.wait_for(lambda: self.has_ended(pid), 'it outlives both sides')


if __name__ == '__main__':
    unittest.main()
