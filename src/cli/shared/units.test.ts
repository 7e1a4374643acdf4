import { expect, test } from 'vitest';
import { parseDurationMs } from './units.ts';

test.each([
  ['500ms', 500],
  ['90', 90_000],
  ['90s', 90_000],
  ['1.5s', 1500],
  ['15m', 900_000],
  ['1h', 3_600_000],
  ['7d', 604_800_000],
])('the duration %s is %i ms', (text, ms) => {
  expect(parseDurationMs(text, '--ttl')).toBe(ms);
});

test.each(['', '0', '0s', '-1s', '1w', '1 h', 'h', '1h30m', '1e3', 'NaN', '999999999999d'])(
  'the duration %j is refused',
  text => {
    expect(() => parseDurationMs(text, '--ttl')).toThrow('--ttl must be a time such as 90s, 15m, 1h or 7d');
  },
);
