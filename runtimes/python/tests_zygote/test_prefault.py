"""Tests the pages that a worker copies before its orders arrive: those that a scout has written to."""
import errno
import os
import platform
import re
import signal
import unittest

from rookery_zygote import prefault, process, rehearsal

from forked import Forked

PAGE = os.sysconf('SC_PAGESIZE')
#: True on kernels with `MADV_POPULATE_WRITE`.
COPIES_EARLY = tuple(int(number) for number in re.findall(r'\d+', platform.release())[:2]) >= (5, 14)
#: Limits for an instance's number of pages: fewer than it has, and more than it may write to.
FEW, MANY = 100, 3000


def pages_of(runs, wanted=True):
    """Returns the addresses of the written pages, or those of the pages that were only read."""
    return {address for start, size, is_written in runs if is_written == wanted for address in range(start, start + size, PAGE)}


class Prefault(Forked):
    def setUp(self):
        super(Prefault, self).setUp()
        rehearsal.prepare(1)
        self.descriptors = os.listdir('/proc/self/fd')

    def check_it_left_nothing(self):
        self.assertEqual(os.listdir('/proc/self/fd'), self.descriptors)
        self.assertEqual(process.descendants(os.getpid()), [])

    def test_a_scout_says_what_it_has_written_and_leaves_nothing(self):
        runs = prefault.find(self.plan)
        self.check_it_left_nothing()
        for start, size, _is_written in runs:
            self.assertEqual((start % PAGE, size % PAGE), (0, 0))
        for is_written in (True, False):
            pages = pages_of(runs, is_written)
            self.assertTrue(FEW < len(pages) < MANY, len(pages))
            self.assertEqual(sum(run[1] for run in runs if run[2] == is_written), len(pages) * PAGE)

    def test_a_missing_scout_leaves_nothing_to_copy(self):
        self.assertEqual(prefault.find(self.changed(root_identity=None)), [])
        self.check_it_left_nothing()

    def test_a_scout_that_stands_still_is_ended_with_its_client(self):
        self.addCleanup(setattr, prefault, '_SECONDS', prefault._SECONDS)
        self.addCleanup(setattr, prefault.user_process, 'obey', prefault.user_process.obey)
        prefault._SECONDS = 0.2
        prefault.user_process.obey = lambda *_ignored: signal.pause()
        self.assertEqual(prefault.find(self.plan), [])
        self.check_it_left_nothing()

    def test_a_scout_that_cannot_be_forked_is_done_without(self):
        def fork():
            raise OSError(errno.EAGAIN, 'no process is left')

        self.addCleanup(setattr, os, 'fork', os.fork)
        os.fork = fork
        self.assertEqual(prefault.find(self.plan), [])
        self.check_it_left_nothing()

    def test_where_code_of_the_same_user_could_reach_into_it_there_is_no_scout(self):
        self.assertEqual(prefault.find(self.changed('pid', 'user', 'user_limits')), [])

    @unittest.skipUnless(COPIES_EARLY, 'this kernel cannot bring pages before they are used')
    def test_a_worker_maps_the_pages_in_advance_and_ignores_missing_ranges(self):
        found = prefault.find(self.plan)

        def missing(runs, is_written):
            forks = self.make_forks()
            forks.populate(runs)
            self.fork(forks, self.tell(lambda: prefault.runs('self'))).ready()
            return len(pages_of(found, is_written) - pages_of(self.heard(), is_written))

        for is_written in (True, False):
            pages = sorted(pages_of(found, is_written))
            late = missing([], is_written)
            early = missing([(PAGE, PAGE, is_written)] + [(page, PAGE, is_written) for page in pages], is_written)
            self.assertLess(early, len(pages) // 10)
            self.assertLess(early, late // 2)


if __name__ == '__main__':
    unittest.main()
