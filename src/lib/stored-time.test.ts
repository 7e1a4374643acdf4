import { expect, test } from 'vitest';
import { isFromWrongClock, MAX_CLOCK_SKEW_MS, msUntilStored } from './stored-time.ts';

test('msUntilStored returns at least 0 and at most the given maximum', () => {
  expect(msUntilStored(1_500, 1_000, 1_000)).toBe(500);
  expect(msUntilStored(900, 1_000, 1_000)).toBe(0);
  expect(msUntilStored(90_000_000, 1_000, 1_000)).toBe(1_000);
});

test('isFromWrongClock is true when a stored time is ahead by more than the allowed clock skew', () => {
  expect(isFromWrongClock(1_000 + MAX_CLOCK_SKEW_MS, 1_000)).toBe(false);
  expect(isFromWrongClock(1_001 + MAX_CLOCK_SKEW_MS, 1_000)).toBe(true);
});
