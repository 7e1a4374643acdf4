import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Timed } from './lazy-timer.ts';

let startTimer: typeof import('./lazy-timer.ts').startTimer;
let stopTimer: typeof import('./lazy-timer.ts').stopTimer;

beforeEach(async () => {
  // That of other tests may have a real timer yet.
  vi.resetModules();
  ({ startTimer, stopTimer } = await import('./lazy-timer.ts'));
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.advanceTimersByTime(2000);
  vi.useRealTimers();
});

function timed(ms: number) {
  const one: Timed & { passedMs: number | undefined } = {
    timer: undefined,
    dueMs: 0,
    passedMs: undefined,
    timePassed() {
      this.passedMs = performance.now() - startedMs;
    },
  };
  const startedMs = performance.now();
  startTimer(one, ms);
  return one;
}

test('each passes once its time is over, whenever it began', () => {
  const times = [0, 1, 50, 1999, 2000, 2001, 3500, 60_000, 86_400_000];
  const first = times.map(timed);
  vi.advanceTimersByTime(700);
  const second = times.map(timed);
  vi.advanceTimersByTime(90_000_000);
  for (const all of [first, second]) {
    for (const [at, ms] of times.entries()) {
      const { passedMs } = all[at] as ReturnType<typeof timed>;
      expect(passedMs).toBeGreaterThanOrEqual(ms);
      expect(passedMs).toBeLessThanOrEqual(ms + 1);
    }
  }
});

test('one that is stopped never passes, young or not', () => {
  const short = timed(500);
  const young = timed(5000);
  const old = timed(5000);
  stopTimer(short);
  stopTimer(young);
  vi.advanceTimersByTime(3000);
  stopTimer(old);
  vi.advanceTimersByTime(60_000);
  expect([short, young, old].map(({ passedMs }) => passedMs)).toEqual([undefined, undefined, undefined]);
});

test('however many begin, one timer waits for all that are young', () => {
  const before = vi.getTimerCount();
  const many = Array.from({ length: 100 }, () => timed(60_000));
  expect(vi.getTimerCount() - before).toBe(1);
  for (const one of many.slice(1)) stopTimer(one);
  vi.advanceTimersByTime(1000);
  expect(vi.getTimerCount() - before).toBe(1);
  stopTimer(many[0] as Timed);
  expect(vi.getTimerCount() - before).toBe(0);
});
