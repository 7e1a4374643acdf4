import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Interval } from './interval.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('Interval starts a round a fixed time after the end of the previous one, without overlap', async () => {
  const ends: (() => void)[] = [];
  const interval = new Interval(1000, () => new Promise<void>(resolve => ends.push(resolve)));
  interval.start();
  await vi.advanceTimersByTimeAsync(999);
  expect(ends).toHaveLength(0);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(ends).toHaveLength(1);
  ends[0]?.();
  await vi.advanceTimersByTimeAsync(999);
  expect(ends).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(ends).toHaveLength(2);
});

test('Interval.close waits for the current round and starts no further round', async () => {
  let end!: () => void;
  let begun = 0;
  const interval = new Interval(1000, () => {
    begun += 1;
    return new Promise<void>(resolve => {
      end = resolve;
    });
  });
  interval.start();
  await vi.advanceTimersByTimeAsync(1000);
  let isClosed = false;
  const closing = interval.close().then(() => {
    isClosed = true;
  });
  await vi.advanceTimersByTimeAsync(5000);
  expect([isClosed, interval.isClosed, begun]).toEqual([false, true, 1]);
  end();
  await closing;
  await interval.close();
  interval.start();
  expect([begun, vi.getTimerCount()]).toEqual([1, 0]);
});
