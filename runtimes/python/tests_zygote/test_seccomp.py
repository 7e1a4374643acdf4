"""Tests the system call filter with a small interpreter of its instructions."""
import struct
import unittest

from rookery_zygote import seccomp

_ALLOW, _EPERM, _ENOSYS, _NOT_SUPPORTED = 0x7FFF0000, 0x00050001, 0x00050026, 0x00050061
_X86_64, _AARCH64, _I386 = 0xC000003E, 0xC00000B7, 0x40000003


def run(program, number, arch, arguments=(), steps=None):
    """Returns the verdict. Appends the codes of the executed instructions to the list `steps`."""
    values = list(arguments) + [0] * (6 - len(arguments))
    data = struct.pack('=IIQ6Q', number, arch, 0, *values)
    accumulator = at = 0
    while True:
        code, true, false, value = struct.unpack_from('=HBBI', program, at * 8)
        at += 1
        if steps is not None:
            steps.append(code)
        if code == 0x06:
            return value
        if code == 0x05:
            at += value
            continue
        if code == 0x20:
            accumulator = struct.unpack_from('=I', data, value)[0]
            continue
        hit = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
        at += true if hit else false


class Filter(unittest.TestCase):
    def check(self, machine, arch, cases):
        program = seccomp.program(machine)
        self.assertLess(len(program) // 8, 4096)
        for number, arguments, verdict in cases:
            self.assertEqual(run(program, number, arch, arguments), verdict, (number, arguments))

    def test_x86_64(self):
        self.check('x86_64', _X86_64, [
            (0, (), _ALLOW), (59, (), _ALLOW), (202, (), _ALLOW),
            (165, (), _EPERM), (101, (), _EPERM), (304, (), _EPERM), (308, (), _EPERM), (321, (), _EPERM),
            (435, (), _ENOSYS), (425, (), _ENOSYS),
            (56, (0x01200011,), _ALLOW), (56, (0x10000000,), _EPERM), (56, (0x00020000,), _EPERM),
            (272, (0x400,), _ALLOW), (272, (0x20000000,), _EPERM), (272, (0x80,), _EPERM),
            (41, (1,), _ALLOW), (41, (2,), _ALLOW), (41, (10,), _ALLOW), (41, (16,), _ALLOW),
            (41, (17,), _NOT_SUPPORTED), (41, (40,), _NOT_SUPPORTED), (53, (38,), _NOT_SUPPORTED), (53, (1,), _ALLOW),
            (16, (0, 0x5401), _ALLOW), (16, (0, 0x5412), _EPERM), (16, (0, 0x541C), _EPERM),
            (0x40000000 + 1, (), _ENOSYS),
        ])

    def test_the_filter_of_accounts_differs_in_setns_only(self):
        for machine, arch, setns in (('x86_64', _X86_64, 308), ('aarch64', _AARCH64, 268)):
            usual, other = seccomp.program(machine), seccomp.program(machine, ('setns',))
            verdicts = {number: (run(usual, number, arch), run(other, number, arch)) for number in range(600)}
            self.assertEqual([number for number, (one, two) in verdicts.items() if one != two], [setns])
            self.assertEqual(verdicts[setns], (_EPERM, _ALLOW))

    def test_each_number_has_the_verdict_of_its_table_after_few_steps(self):
        for machine, arch, column, looked_at in (
                ('x86_64', _X86_64, 1, {2, 16, 41, 53, 56, 85, 90, 91, 133, 135, 257, 259, 268, 272, 302, 452}),
                ('aarch64', _AARCH64, 2, {29, 33, 52, 53, 56, 92, 97, 198, 199, 220, 261, 452})):
            program = seccomp.program(machine)
            verdicts = {entry[column]: _EPERM for entry in seccomp.DENIED}
            verdicts.update((entry[column], _ENOSYS) for entry in seccomp.ABSENT)
            for number in set(range(600)) - looked_at:
                steps = []
                self.assertEqual(run(program, number, arch, steps=steps), verdicts.get(number, _ALLOW), number)
                self.assertLess(len(steps), 20)

    def test_a_personality_that_makes_memory_easier_to_attack_is_refused(self):
        for machine, arch, number in (('x86_64', _X86_64, 135), ('aarch64', _AARCH64, 92)):
            self.check(machine, arch, [
                (number, (0,), _ALLOW), (number, (8,), _ALLOW), (number, (0xFFFFFFFF,), _ALLOW), (number, (0x20008,), _ALLOW),
                (number, (0x400000,), _EPERM), (number, (0x40000,), _EPERM), (number, (0x100000,), _EPERM), (number, (3,), _EPERM),
            ])

    def test_limits_of_another_process_are_read_and_not_changed(self):
        for machine, arch, number in (('x86_64', _X86_64, 302), ('aarch64', _AARCH64, 261)):
            self.check(machine, arch, [
                (number, (0, 7, 0x7FFF0000), _ALLOW), (number, (0, 7, 0), _ALLOW), (number, (1, 7, 0), _ALLOW),
                (number, (1, 7, 0x7FFF0000), _EPERM), (number, (1, 7, 0x100000000), _EPERM), (number, (99, 7, 1), _EPERM),
                # A pid has 32 bits; the upper half of the argument is ignored.
                (number, (0x100000000, 7, 1), _ALLOW), (number, (0x100000001, 7, 1), _EPERM),
            ])

    def test_aarch64(self):
        self.check('aarch64', _AARCH64, [
            (63, (), _ALLOW), (221, (), _ALLOW), (40, (), _EPERM), (117, (), _EPERM), (268, (), _EPERM),
            (220, (17,), _ALLOW), (220, (0x10000000,), _EPERM), (198, (40,), _NOT_SUPPORTED), (198, (1,), _ALLOW),
            (435, (), _ENOSYS),
        ])

    def test_no_system_call_sets_the_user_or_group_bit_of_a_file(self):
        creates, temporary = 0o101, 0o20200002
        for bits in (0o4755, 0o2755, 0o6777, 0o4000, 0o102755, 0xFFFFFFFF00000000 | 0o4755):
            self.check('x86_64', _X86_64, [
                (90, (0, bits), _EPERM), (91, (3, bits), _EPERM), (268, (0, 0, bits), _EPERM), (452, (0, 0, bits), _EPERM),
                (85, (0, bits), _EPERM), (133, (0, bits), _EPERM), (259, (0, 0, bits), _EPERM),
                (2, (0, creates, bits), _EPERM), (257, (0, 0, creates, bits), _EPERM), (257, (0, 0, temporary, bits), _EPERM),
                # Without one of these flags there is no mode, and the argument may have any value.
                (2, (0, 0, bits), _ALLOW), (257, (0, 0, 0o200000, bits), _ALLOW),
                (437, (), _ENOSYS),
            ])
            self.check('aarch64', _AARCH64, [
                (52, (3, bits), _EPERM), (53, (0, 0, bits), _EPERM), (452, (0, 0, bits), _EPERM), (33, (0, 0, bits), _EPERM),
                (56, (0, 0, creates, bits), _EPERM), (56, (0, 0, 0, bits), _ALLOW), (437, (), _ENOSYS),
            ])

    def test_other_file_modes_pass_the_filter(self):
        for mode in (0, 0o644, 0o755, 0o777, 0o1777):
            self.check('x86_64', _X86_64, [
                (90, (0, mode), _ALLOW), (91, (3, mode), _ALLOW), (268, (0, 0, mode), _ALLOW), (452, (0, 0, mode), _ALLOW),
                (2, (0, 0o101, mode), _ALLOW), (257, (0, 0, 0o101, mode), _ALLOW), (85, (0, mode), _ALLOW),
            ])

    def test_calls_of_another_architecture_do_not_pass(self):
        self.assertEqual(run(seccomp.program('x86_64'), 3, _I386), _EPERM)

    def test_a_machine_that_is_not_known_has_no_filter(self):
        self.assertIsNone(seccomp.program('riscv64'))
