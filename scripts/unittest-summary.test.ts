import { expect, test } from 'vitest';
import { readUnittest } from './unittest-summary.ts';

const summary = (count: number, verdict: string) =>
  `....\n${'-'.repeat(70)}\nRan ${count} test${count === 1 ? '' : 's'} in 0.012s\n\n${verdict}\n`;

test.each([
  ['all pass', summary(4, 'OK'), 0, { passed: 4, failed: 0, skipped: 0 }],
  ['one test is "1 test"', summary(1, 'OK'), 0, { passed: 1, failed: 0, skipped: 0 }],
  ['some are skipped', summary(4, 'OK (skipped=3)'), 0, { passed: 1, failed: 0, skipped: 3 }],
  [
    'failures, errors and unexpected successes all failed',
    summary(9, 'FAILED (failures=1, errors=2, skipped=3, expected failures=1, unexpected successes=1)'),
    1,
    { passed: 2, failed: 4, skipped: 3 },
  ],
  [
    'numbers in the text of an error do not count',
    `ValueError: x (errors=7)\n${summary(2, 'FAILED (errors=1)')}`,
    1,
    { passed: 1, failed: 1, skipped: 0 },
  ],
  ['no tests at all is a failure', summary(0, 'OK'), 0, { passed: 0, failed: 1, skipped: 0 }],
  ['a crash is a failure', 'Segmentation fault\n', 139, { passed: 0, failed: 1, skipped: 0 }],
  ['a bad end after good tests is a failure', summary(4, 'OK'), 1, { passed: 0, failed: 1, skipped: 0 }],
])('%s', (_, output, code, expected) => {
  expect(readUnittest(output, code)).toEqual(expected);
});
