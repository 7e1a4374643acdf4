import { expect, test } from 'vitest';
import { unavailable } from '../core/error.ts';
import { RepeatedFailures } from './repeated-failures.ts';

function failures() {
  const lines: [string, object, string][] = [];
  const log = (level: string) => (fields: object, message: string) => void lines.push([level, fields, message]);
  const clock = { nowMs: 0 };
  const logged = new RepeatedFailures({ info: log('info'), warn: log('warn'), error: log('error') }, () => clock.nowMs);
  return { lines, clock, logged, fail: (key: string, error: unknown) => logged.failed(key, error, { key }, 'failed') };
}

test('a repeated failure is logged without its stack trace, immediately and then once a minute', () => {
  const { lines, clock, fail } = failures();
  for (let second = 0; second < 121; second += 2) {
    clock.nowMs = second * 1000;
    fail('a', unavailable('the disk is full'));
  }
  expect(lines).toEqual(Array(3).fill(['warn', { key: 'a', reason: 'the disk is full' }, 'failed']));
});

test('a failure is logged immediately when its reason or key is new, and after a recovery', () => {
  const { lines, logged, fail } = failures();
  fail('a', unavailable('the disk is full'));
  fail('b', unavailable('the disk is full'));
  fail('a', unavailable('away'));
  logged.passed('a', { key: 'a' }, 'well again');
  logged.passed('a', { key: 'a' }, 'well again');
  fail('a', unavailable('away'));
  expect(lines.map(([level, fields]) => [level, ...Object.values(fields)])).toEqual([
    ['warn', 'a', 'the disk is full'],
    ['warn', 'b', 'the disk is full'],
    ['warn', 'a', 'away'],
    ['info', 'a'],
    ['warn', 'a', 'away'],
  ]);
});

test('an unexpected error is logged with its stack trace', () => {
  const { lines, fail } = failures();
  const error = new TypeError('broken');
  fail('a', error);
  expect(lines).toEqual([['warn', { key: 'a', err: error }, 'failed']]);
});

test('sweep forgets a failure that has not occurred for a minute', () => {
  const { lines, clock, logged, fail } = failures();
  fail('a', unavailable('away'));
  clock.nowMs = 60_000;
  logged.sweep();
  logged.passed('a', {}, 'well again');
  expect(lines).toHaveLength(1);
});
