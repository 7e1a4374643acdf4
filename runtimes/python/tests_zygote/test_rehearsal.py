"""What a zygote rehearses before it forks."""
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
CODE = '''
import os, sys
from rookery_zygote import rehearsal

def state():
    about = os.listdir('/proc/self/fd'), os.listdir('/proc/self/task'), list(sys.path), sys.dont_write_bytecode
    return about, [name for name in sys.modules if 'rehearsed' in name]

before = state()
rehearsal.prepare(2)
assert state() == before, (before, state())
rehearsal.rehearse()
assert state() == before, (before, state())
'''


class Rehearsal(unittest.TestCase):
    def test_it_leaves_no_descriptor_no_thread_and_no_module_of_the_rehearsed_code(self):
        environment = dict(os.environ, PYTHONPATH=os.path.dirname(HERE))
        self.assertEqual(subprocess.call([sys.executable, '-B', '-c', CODE], env=environment), 0)


if __name__ == '__main__':
    unittest.main()
