"""Tests the small parts: frames, users, processes, the template of /etc."""
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from rookery_zygote import etc, frames, identity, process, waiting
from rookery_zygote.failure import StartFailure


class Frames(unittest.TestCase):
    def setUp(self):
        self.here, self.there = socket.socketpair()
        self.addCleanup(self.here.close)
        self.addCleanup(self.there.close)

    def test_messages_come_as_they_were_sent(self):
        frames.write_message(self.here, {'a': '\u00fc'})
        frames.write(self.here, b'one', b'')
        self.assertEqual(frames.read_message(self.there), {'a': '\u00fc'})
        self.assertEqual(frames.read(self.there), b'one')
        self.assertEqual(frames.read(self.there), b'')

    def test_an_end_between_frames_is_clean_and_an_end_inside_a_frame_is_an_error(self):
        self.here.sendall(b'\0\0\0\5ab')
        self.here.close()
        with self.assertRaises(frames.FrameError):
            frames.read(self.there)
        self.assertIsNone(frames.read(self.there))

    def test_a_message_that_is_too_large_or_no_object_is_refused(self):
        frames.write(self.here, b'x' * 100)
        with self.assertRaises(frames.FrameError):
            frames.read(self.there, largest=99)
        for text in (b'[]', b'{'):
            here, there = socket.socketpair()
            frames.write(here, text)
            with self.assertRaises(frames.FrameError):
                frames.read_message(there)
            here.close()
            there.close()


    def test_frames_are_taken_out_of_the_bytes_when_they_are_whole(self):
        received = bytearray()
        taken = []
        for byte in frames.packed(b'one') + frames.packed(b'') + frames.packed(b'two') + b'\0\0':
            received.append(byte)
            frame = frames.take(received)
            if frame is not None:
                taken.append(frame)
        self.assertEqual((taken, received), ([b'one', b'', b'two'], b'\0\0'))

    def test_a_frame_that_announces_too_much_is_refused_before_it_is_there(self):
        with self.assertRaises(frames.FrameError):
            frames.take(bytearray(b'\0\0\0\7'), largest=6)


class Waiting(unittest.TestCase):
    def setUp(self):
        handler = signal.getsignal(signal.SIGCHLD)
        self.wake = waiting.Wakeup()
        self.addCleanup(signal.signal, signal.SIGCHLD, handler)
        self.addCleanup(self.wake.close)
        self.poll = select.poll()
        self.poll.register(self.wake.fileno(), select.POLLIN)

    def test_the_end_of_a_child_wakes_the_poll_and_is_reported_once(self):
        self.assertEqual(self.poll.poll(0), [])
        child = os.fork()
        if child == 0:
            os._exit(7)
        self.assertEqual(len(self.poll.poll(waiting.left_ms(time.monotonic() + 30))), 1)
        self.wake.clear()
        ended = []
        self.assertTrue(waiting.until(lambda: not waiting.reap(lambda *one: ended.append(one)), 30, 0.01))
        self.assertEqual([(pid, os.WEXITSTATUS(status)) for pid, status in ended], [(child, 7)])

    def test_children_that_live_are_waited_for_only_when_that_is_asked_for(self):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        os.close(reader)
        ended = []
        self.assertTrue(waiting.reap(lambda pid, _status: ended.append(pid)))
        self.assertEqual(ended, [])
        os.close(writer)
        self.assertFalse(waiting.reap(lambda pid, _status: ended.append(pid), 0))
        self.assertEqual(ended, [child])

    def test_a_nudge_wakes_and_never_blocks(self):
        for _ in range(100000):
            self.wake.nudge()
        self.assertEqual(len(self.poll.poll(0)), 1)

    def test_a_missing_deadline_never_passes_and_a_far_deadline_fits_into_a_poll(self):
        self.assertIsNone(waiting.left_ms(None))
        self.assertFalse(waiting.is_over(None))
        self.assertTrue(waiting.is_over(time.monotonic() - 1))
        self.assertEqual(waiting.left_ms(time.monotonic() - 1), 1)
        self.assertLess(waiting.left_ms(time.monotonic() + 1e12), 2 ** 31)

    def test_a_condition_that_never_holds_is_false_in_the_end(self):
        self.assertFalse(waiting.until(lambda: False, 0.01, 0.001))
        looks = []
        self.assertTrue(waiting.until(lambda: looks.append(1) or len(looks) == 3, 30, 0.001))


class Users(unittest.TestCase):
    def test_an_empty_user_name_means_root(self):
        found = identity.find('')
        self.assertEqual((found.name, found.uid, found.gid), ('root', 0, 0))

    def test_names_and_numbers(self):
        self.assertEqual(identity.find('root').uid, 0)
        self.assertEqual(identity.find('0').name, 'root')
        stranger = identity.find('54321')
        self.assertEqual((stranger.uid, stranger.gid, stranger.groups), (54321, 54321, [54321]))
        self.assertEqual(identity.find('54321:12').gid, 12)

    def test_a_user_that_does_not_exist_is_named(self):
        with self.assertRaises(StartFailure) as caught:
            identity.find('no-such-user')
        self.assertEqual(caught.exception.message, 'user no-such-user does not exist in /etc/passwd of this host')
        with self.assertRaises(StartFailure):
            identity.find('root:no-such-group')


class Processes(unittest.TestCase):
    def test_a_start_time_names_a_process(self):
        self.assertIsNotNone(process.start_time(os.getpid()))
        self.assertEqual(process.start_time('self'), process.start_time(os.getpid()))
        self.assertIsNone(process.start_time(2 ** 30))

    def test_a_life_is_named_once_and_its_name_ends_with_the_pid(self):
        names = {process.life() for _ in range(1000)}
        self.assertEqual(len(names), 1000)
        self.assertEqual({name.split('-')[-1] for name in names}, {str(os.getpid())})

    def test_descendants_include_children_of_children(self):
        table = {1: 0, 2: 1, 3: 2, 4: 3, 5: 1, 6: 0}
        self.assertEqual(sorted(process.descendants(2, table)), [3, 4])
        self.assertEqual(process.descendants(6, table), [])

    def test_parents_come_before_their_children_whatever_their_numbers(self):
        self.assertEqual(process.descendants(9, {3: 8, 8: 7, 7: 9, 5: 9, 4: 3}), [5, 7, 8, 3, 4])

    def test_killing_a_process_that_is_gone_is_no_failure(self):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        process.kill(child)
        process.kill(-child)

    def test_descriptors_that_are_not_kept_are_closed(self):
        code = (
            'import os\n'
            'from rookery_zygote import process\n'
            'kept, lost = os.open("/dev/null", 0), os.open("/dev/null", 0)\n'
            'process.close_all_but([1, 2, kept])\n'
            'for number, open_ in ((0, False), (1, True), (2, True), (kept, True), (lost, False)):\n'
            '    try:\n'
            '        os.fstat(number)\n'
            '        assert open_, number\n'
            '    except OSError:\n'
            '        assert not open_, number\n'
        )
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        subprocess.check_call([sys.executable, '-c', code], env=dict(os.environ, PYTHONPATH=root))

    def test_a_title_takes_the_place_of_command_line_and_environment(self):
        code = (
            'from rookery_zygote import process\n'
            'title = process.Title()\n'
            'title.set("rookery: test")\n'
            'assert open("/proc/self/cmdline").read().strip("\\0") == "rookery: test"\n'
            'assert open("/proc/self/environ").read().strip("\\0") == ""\n'
        )
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        subprocess.check_call(
            [sys.executable, '-c', code, ' ' * 64], env=dict(os.environ, PYTHONPATH=root, SECRET='secret')
        )


class Etc(unittest.TestCase):
    def setUp(self):
        self.source = tempfile.mkdtemp(prefix='rookery-etc-')
        self.addCleanup(shutil.rmtree, self.source)
        self.target = os.path.join(self.source, 'template')

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.source, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as target:
            target.write(text)
        os.chmod(path, mode)

    def read(self, name):
        with open(os.path.join(self.target, name)) as source:
            return source.read()

    def test_only_files_on_the_list_are_copied(self):
        self.write('hosts', '127.0.0.1 localhost\n')
        self.write('shadow', 'root:secret\n')
        self.write('ssh/key', 'secret\n')
        self.write('ssl/private/key', 'secret\n')
        etc.EtcTemplate(self.target, self.source)
        self.assertEqual(self.read('hosts'), '127.0.0.1 localhost\n')
        self.assertFalse(os.path.exists(os.path.join(self.target, 'shadow')))
        self.assertFalse(os.path.exists(os.path.join(self.target, 'ssh')))
        self.assertFalse(os.path.exists(os.path.join(self.target, 'ssl', 'private')))

    def test_files_that_others_may_not_read_are_not_copied(self):
        self.write('hosts', 'secret\n', 0o600)
        etc.EtcTemplate(self.target, self.source)
        self.assertFalse(os.path.exists(os.path.join(self.target, 'hosts')))

    def test_a_file_that_is_replaced_is_copied_again_in_place(self):
        self.write('resolv.conf', 'nameserver 1\n')
        template = etc.EtcTemplate(self.target, self.source)
        inode = os.stat(os.path.join(self.target, 'resolv.conf')).st_ino
        self.write('resolv.new', 'nameserver 2, longer\n')
        os.rename(os.path.join(self.source, 'resolv.new'), os.path.join(self.source, 'resolv.conf'))
        template.refresh()
        self.assertEqual(self.read('resolv.conf'), 'nameserver 2, longer\n')
        self.assertEqual(os.stat(os.path.join(self.target, 'resolv.conf')).st_ino, inode)

    def test_a_kept_copy_of_etc_copies_only_changed_files(self):
        self.write('hosts', 'same\n')
        self.write('resolv.conf', 'nameserver 1\n')
        etc.EtcTemplate(self.target, self.source)
        before = os.stat(os.path.join(self.target, 'hosts')).st_ctime_ns
        self.write('resolv.conf', 'nameserver 2, longer\n')
        etc.EtcTemplate(self.target, self.source, keep=True)
        self.assertEqual(self.read('resolv.conf'), 'nameserver 2, longer\n')
        self.assertEqual(os.stat(os.path.join(self.target, 'hosts')).st_ctime_ns, before)

    def test_a_template_that_was_removed_is_not_made_again_by_what_changes(self):
        self.write('hosts', 'one\n')
        template = etc.EtcTemplate(self.target, self.source)
        shutil.rmtree(self.target)
        self.write('hosts', 'another, longer\n')
        self.write('ssl/openssl.cnf', 'new\n')
        template.refresh()
        self.assertFalse(os.path.exists(self.target))

    def test_every_user_may_enter_its_directories_whatever_the_mask_of_the_zygote_is(self):
        self.write('ssl/openssl.cnf', 'settings')
        self.write('ssl/certs/ca.pem', 'certificate')
        self.write('pki/tls/certs/ca.pem', 'certificate')
        mask = os.umask(0o077)
        try:
            etc.EtcTemplate(self.target, self.source)
        finally:
            os.umask(mask)
        for name in ('.', 'ssl', 'ssl/certs', 'pki', 'pki/tls', 'pki/tls/certs'):
            self.assertEqual(os.stat(os.path.join(self.target, name)).st_mode & 0o777, 0o755, name)

    def test_directories_on_the_list_have_their_place(self):
        self.write('ssl/certs/ca.pem', 'certificate')
        self.write('java-17-openjdk/conf', 'settings')
        template = etc.EtcTemplate(self.target, self.source)
        self.assertEqual(template.directories, ['ssl/certs', 'java-17-openjdk'])
        self.assertTrue(os.path.isdir(os.path.join(self.target, 'java-17-openjdk')))
        template.remove()
        self.assertFalse(os.path.exists(self.target))
