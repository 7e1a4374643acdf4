"""The rotating log: what a reader can rely on."""
import os
import re
import shutil
import tempfile
import unittest

from rookery_zygote.logfile import LogFile


class Log(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix='rookery-log-')
        self.addCleanup(shutil.rmtree, self.directory)
        self.descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, self.descriptor)

    def files(self):
        found = []
        for name in ('log.2', 'log.1', 'log'):
            path = os.path.join(self.directory, name)
            if os.path.exists(path):
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

    def test_each_line_has_its_time(self):
        log = LogFile(self.descriptor, 1000, 3)
        log.write(b'one\ntwo\n')
        self.assertTrue(re.match(br'^\d{13} one\n\d{13} two\n$', self.files()[0]))

    def test_a_line_in_pieces_has_one_time(self):
        log = LogFile(self.descriptor, 1000, 3)
        for piece in (b'a', b'b', b'c\n', b'd\n', b'\n'):
            log.write(piece)
        self.assertEqual(self.files()[0].count(b'\n'), 3)
        self.assertTrue(re.match(br'^\d{13} abc\n\d{13} d\n\d{13} \n$', self.files()[0]))

    def test_it_rotates_and_keeps_the_newest(self):
        log = LogFile(self.descriptor, 1000, 3)
        for number in range(500):
            log.write(b'line %03d\n' % number)
        lines = self.lines()
        self.assertEqual(len(self.files()), 3)
        self.assertEqual(lines, [b'line %03d' % number for number in range(500 - len(lines), 500)])
        self.assertTrue(all(len(content) < 1100 for content in self.files()))

    def test_a_chunk_larger_than_all_files_leaves_its_end(self):
        log = LogFile(self.descriptor, 1000, 3)
        log.write(b''.join(b'line %04d\n' % number for number in range(3000)))
        self.assertEqual(self.lines()[-1], b'line 2999')
        self.assertEqual(len(self.files()), 3)

    def test_a_line_longer_than_a_file_goes_on_in_the_next(self):
        log = LogFile(self.descriptor, 100000, 3)
        log.write(b'x' * 250000 + b'\nend\n')
        files = self.files()
        self.assertEqual(len(files), 3)
        self.assertTrue(re.match(br'\d{13}\+x', files[1]))
        self.assertEqual(self.lines(), [b'x' * 250000, b'end'])
