import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { SilenceWatch } from './silence.ts';

const MOST_MS = 40_000;
let watch: SilenceWatch;
let told: number;

beforeEach(() => {
  vi.useFakeTimers();
  told = 0;
  watch = new SilenceWatch(MOST_MS, () => {
    told += 1;
  });
});
afterEach(() => {
  watch.end();
  vi.useRealTimers();
});

test('SilenceWatch reports nothing while messages arrive often enough', () => {
  for (let at = 0; at < 20; at++) {
    vi.advanceTimersByTime(15_000);
    watch.heard();
  }
  expect(told).toBe(0);
});

test('SilenceWatch reports a silence once', () => {
  vi.advanceTimersByTime(MOST_MS);
  expect(told).toBe(0);
  vi.advanceTimersByTime(5000);
  expect(told).toBe(1);
  vi.advanceTimersByTime(10 * MOST_MS);
  expect(told).toBe(1);
});

test.each([8, -8])(
  'SilenceWatch reports a silence at its next check when the clock has jumped by %s hours, as after a sleep',
  hours => {
    vi.setSystemTime(Date.now() + hours * 3_600_000);
    vi.advanceTimersByTime(5000);
    expect(told).toBe(1);
  },
);

test('an ended SilenceWatch reports nothing', () => {
  watch.end();
  vi.advanceTimersByTime(10 * MOST_MS);
  expect(told).toBe(0);
});
