"""Tests the messages for programs that cannot be executed."""
import os
import shutil
import tempfile
import unittest

from rookery_runtime.http_program import HttpProgram, NotServing


class CannotBeExecuted(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix='rookery-programs-')
        self.addCleanup(shutil.rmtree, self.directory)

    def reason(self, content, mode=0o755):
        path = os.path.join(self.directory, 'bootstrap')
        if content is not None:
            with open(path, 'wb') as file:
                file.write(content)
            os.chmod(path, mode)
        with self.assertRaises(NotServing) as raised:
            HttpProgram([path])
        text = str(raised.exception)
        start = '%s cannot be executed: ' % path
        self.assertTrue(text.startswith(start), text)
        return text[len(start):]

    def test_a_missing_interpreter_is_named_and_windows_line_ends_are_said(self):
        line_ends = 'which does not exist (Windows line ends)'
        for content, reason in (
                (b'#!/bin/sh\r\necho x\r\n', 'its first line names /bin/sh\\r, ' + line_ends),
                (b'#! /bin/sh\r\n', 'its first line names /bin/sh\\r, ' + line_ends),
                (b'#!/nowhere/python3\nprint(1)\n', 'its first line names /nowhere/python3, which does not exist'),
                (b'#!/nowhere/python3 -u\r\n', 'its first line names /nowhere/python3, ' + line_ends),
                (b'#!/nowhere/\xff\n', 'its first line names /nowhere/\\xff, which does not exist')):
            self.assertEqual(self.reason(content), reason)

    def test_other_failures_name_the_reason_of_the_system(self):
        self.assertEqual(self.reason(None), 'No such file or directory')
        self.assertEqual(
            self.reason(b'echo no first line\n'),
            'it is neither a program of this machine nor a script whose first line names its interpreter')

    def test_a_script_whose_interpreter_is_there_runs_with_its_line_ends(self):
        path = os.path.join(self.directory, 'bootstrap')
        with open(path, 'wb') as file:
            file.write(b'#!/bin/sh\nexit 7\n')
        os.chmod(path, 0o755)
        self.assertEqual(HttpProgram([path]).wait(), 7)


if __name__ == '__main__':
    unittest.main()
