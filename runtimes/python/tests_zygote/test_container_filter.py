"""Tests that the profile of containers has the same verdicts as the filter of processes."""
import json
import os
import unittest

from rookery_zygote import container_filter, seccomp
from test_seccomp import run

_WORDS = {'SCMP_ACT_ALLOW': 0x7FFF0000, 'SCMP_ACT_ERRNO': 0x00050001}
_UNSUPPORTED = 0x00050061


def verdict(profile, name, arguments):
    values = list(arguments) + [0] * (6 - len(arguments))
    for rule in profile['syscalls']:
        if name in rule['names'] and all(holds(condition, values) for condition in rule.get('args', ())):
            return 0x00050000 | rule['errnoRet'] if 'errnoRet' in rule else _WORDS[rule['action']]
    return _WORDS[profile['defaultAction']]


def holds(condition, values):
    value = values[condition['index']]
    if condition['op'] == 'SCMP_CMP_MASKED_EQ':
        return value & condition['value'] == condition['valueTwo']
    return {'SCMP_CMP_EQ': value == condition['value']}[condition['op']]


class ContainerFilter(unittest.TestCase):
    profile = container_filter.profile()

    def test_every_system_call_is_in_exactly_one_table(self):
        named = [name for table in (seccomp.DENIED, seccomp.ABSENT, seccomp.MODES) for name in {row[0] for row in table}]
        named += ['clone', 'unshare', 'personality', 'socket', 'socketpair', 'prlimit64']
        both = named + container_filter._ALLOWED
        self.assertEqual(sorted(both), sorted(set(both)))

    def test_a_call_that_is_denied_to_a_process_is_denied_to_a_container(self):
        for name, _, _ in seccomp.DENIED:
            self.assertEqual(verdict(self.profile, name, ()), 0x00050001, name)
        for name, _, _ in seccomp.ABSENT:
            self.assertEqual(verdict(self.profile, name, ()), 0x00050026, name)

    def test_an_unknown_system_call_is_denied(self):
        self.assertEqual(verdict(self.profile, 'of_tomorrow', ()), 0x00050001)

    def test_a_call_that_is_filtered_by_argument_ends_as_for_a_process(self):
        process = seccomp.program('x86_64')
        modes = (0, 0o644, 0o1777, 0o2755, 0o4755, 0o6000, 0o102755, 0xFFFFFFFF00000000 | 0o4755, 0xFFFFFFFF00000000)
        flags = (0, 0o1, 0o101, 0o20200002, 0o200000, 0xFFFFFFFF00000000)
        cases = []
        for name, number, _, mode_index, flags_index in seccomp.MODES:
            for mode in modes:
                for flag in flags if flags_index is not None else (0,):
                    arguments = [0] * 6
                    arguments[mode_index] = mode
                    if flags_index is not None:
                        arguments[flags_index] = flag
                    cases.append((name, number, arguments))
        for first in (0, 1, 2, 3, 8, 9, 10, 16, 17, 38, 40, 0x20008, 0x400000, 0x01200011, 0x10000000, 0x20000, 0x80, 0x400,
                      0xFFFFFFFF, 0x100000000, 0x100000001, 0x10000000A):
            cases += [(name, number, [first]) for name, number in (
                ('clone', 56), ('unshare', 272), ('personality', 135), ('socket', 41), ('socketpair', 53))]
            cases += [('prlimit64', 302, [first, 7, new]) for new in (0, 1, 0x100000000)]
        for name, number, arguments in cases:
            expected = run(process, number, 0xC000003E, arguments)
            # A profile of Docker has one error for all refused address families and other calls.
            expected = 0x00050001 if expected == _UNSUPPORTED else expected
            self.assertEqual(verdict(self.profile, name, arguments), expected, (name, [hex(one) for one in arguments]))

    def test_the_file_that_docker_gets_is_made_from_this(self):
        path = os.path.join(os.path.dirname(container_filter.__file__), 'container_filter.json')
        with open(path) as source:
            self.assertEqual(json.load(source), self.profile)
