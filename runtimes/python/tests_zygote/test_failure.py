"""Tests the codes by which the control plane distinguishes failures of a start."""

import errno
import unittest

from rookery_zygote.failure import LayerFailure, code_of


class Codes(unittest.TestCase):
    def test_a_shortage_of_the_machine_may_pass(self):
        for number in (errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EAGAIN):
            self.assertEqual(code_of(OSError(number, "x")), "unavailable")

    def test_everything_else_stays_as_it_is(self):
        for error in (OSError(errno.EPERM, "x"), BrokenPipeError(), ValueError("x"), LayerFailure("mount", ValueError("x"))):
            self.assertEqual(code_of(error), "internal")


if __name__ == "__main__":
    unittest.main()
