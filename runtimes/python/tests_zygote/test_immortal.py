"""
Tests that shared objects are not counted, on interpreters that support it.

Each check runs in a separate interpreter.
"""

import os
import subprocess
import sys
import textwrap
import unittest

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_HAS_IMMORTAL = sys.version_info >= (3, 12)


class Immortal(unittest.TestCase):
    def run_code(self, code):
        code = "import sys\nsys.path.insert(0, %r)\nfrom rookery_zygote import immortal\n" % _ROOT + textwrap.dedent(code)
        done = subprocess.run(
            [sys.executable, "-I", "-B", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.split()

    def test_references_to_what_a_module_has_are_not_counted(self):
        changed = self.run_code(
            """
            import json
            immortal.make_modules_immortal()
            for one in (json.loads, json.loads.__code__, json.__dict__, json.JSONDecoder, json.loads.__code__.co_consts):
                before = immortal._count_of(one)
                more = [one] * 10
                print(immortal._count_of(one) - before)
            """
        )
        self.assertEqual(changed, ["0" if _HAS_IMMORTAL else "10"] * 5)

    def test_objects_outside_of_modules_end_with_their_last_reference(self):
        said = self.run_code(
            """
            import os, socket
            class Own:
                def __del__(self):
                    print('ended')
            def keep():
                own = Own()
                immortal.make_modules_immortal()
            sys.kept = socket.socket()
            number = sys.kept.fileno()
            keep()
            del sys.kept
            try:
                os.fstat(number)
            except OSError:
                print('closed')
            """
        )
        self.assertEqual(said, ["ended", "closed"])

    def test_making_objects_immortal_keeps_the_attribute_cache(self):
        said = self.run_code(
            """
            import abc, io
            asked = []
            class Meta(abc.ABCMeta):
                def __subclasscheck__(cls, kind):
                    asked.append(kind)
                    return abc.ABCMeta.__subclasscheck__(cls, kind)
            class Asks(io.IOBase, metaclass=Meta):
                pass
            class Open(io.RawIOBase):
                pass
            sys.kept = Open()
            before = immortal._count_of(sys.kept)
            immortal.make_modules_immortal()
            print(len(asked), immortal._count_of(sys.kept) - before)
            print([kind.__name__ for kind in immortal._MORTAL if type(kind) is not type])
            """
        )
        self.assertEqual(said, ["0", "0", "[]"])

    def test_modules_go_on_working_and_the_interpreter_ends_as_any(self):
        said = self.run_code(
            """
            import collections, enum, importlib, json, logging, re, threading
            immortal.make_modules_immortal()
            importlib.reload(json)
            thread = threading.Thread(target=logging.getLogger('a').debug, args=('x',))
            thread.start()
            thread.join()
            class More(json.JSONDecoder, metaclass=type):
                pass
            text = 'a'
            for _ in range(1000):
                text += 'b'
            del sys.modules['json']
            print(json.loads('{"a": 1}')['a'], len(text), re.compile('b+').search(text).end())
            """
        )
        self.assertEqual(said, ["1", "1001", "1001"])


if __name__ == "__main__":
    unittest.main()
