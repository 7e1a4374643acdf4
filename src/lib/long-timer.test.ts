import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { afterMs, MAX_TIMER_MS, timeoutSignal } from './deadline.ts';

const LONGEST_TIMEOUT_MS = 8_640_000_000;

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

test.each([0, 1, MAX_TIMER_MS, MAX_TIMER_MS + 1, 2 * MAX_TIMER_MS + 5, LONGEST_TIMEOUT_MS])(
  'afterMs of %d ms fires once and not before its time',
  ms => {
    const fire = vi.fn();
    afterMs(ms, fire);
    vi.advanceTimersByTime(Math.max(0, ms - 1));
    expect(fire).toHaveBeenCalledTimes(ms === 0 ? 1 : 0);
    vi.advanceTimersByTime(MAX_TIMER_MS);
    expect(fire).toHaveBeenCalledTimes(1);
  },
);

test('a cancelled timer never fires, even when its time spans several timers', () => {
  const fire = vi.fn();
  const cancel = afterMs(LONGEST_TIMEOUT_MS, fire);
  vi.advanceTimersByTime(MAX_TIMER_MS + 1);
  cancel();
  vi.advanceTimersByTime(LONGEST_TIMEOUT_MS);
  expect(fire).not.toHaveBeenCalled();
  expect(vi.getTimerCount()).toBe(0);
});

test.each([Number.POSITIVE_INFINITY])('a timer of %d ms never fires', ms => {
  const fire = vi.fn();
  const cancel = afterMs(ms, fire);
  vi.advanceTimersByTime(3 * MAX_TIMER_MS);
  expect(fire).not.toHaveBeenCalled();
  cancel();
});

test.each([1, MAX_TIMER_MS + 1, LONGEST_TIMEOUT_MS, Number.POSITIVE_INFINITY])(
  'a timeout signal of %d ms does not abort at once',
  ms => {
    vi.useRealTimers();
    expect(timeoutSignal(ms + 1000).aborted).toBe(false);
  },
);
