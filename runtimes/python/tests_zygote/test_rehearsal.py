"""Tests the rehearsal of a zygote before it forks."""
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
CODE = '''
import os, signal, sys
from rookery_zygote import rehearsal

def state():
    about = os.listdir('/proc/self/fd'), os.listdir('/proc/self/task'), list(sys.path), sys.dont_write_bytecode
    process = dict(os.environ), list(sys.argv), getattr(sys, 'orig_argv', None), sys.modules['__main__'].__dict__ is globals()
    signals = [signal.getsignal(number) for number in (signal.SIGURG, signal.SIGTERM, signal.SIGINT)]
    return about, process, signals, [name for name in sys.modules if 'rehearsed' in name]

before = state()
rehearsal.prepare(2)
assert state() == before, (before, state())
'''


class Rehearsal(unittest.TestCase):
    def test_a_rehearsal_leaves_the_process_unchanged_and_keeps_no_module(self):
        environment = dict(os.environ, PYTHONPATH=os.path.dirname(HERE))
        self.assertEqual(subprocess.call([sys.executable, '-B', '-c', CODE], env=environment), 0)


if __name__ == '__main__':
    unittest.main()
