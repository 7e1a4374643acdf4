import { expect, test } from 'vitest';
import { backoffMs, pause, poll, retry } from './backoff.ts';

test('backoffMs grows from the first pause to the longest and stays there', () => {
  const pauses = [1, 2, 3, 4, 5, 2000].map(failures => backoffMs({ firstMs: 100, longestMs: 1000 }, failures));
  expect(pauses).toEqual([100, 200, 400, 800, 1000, 1000]);
  expect(backoffMs({ firstMs: 10, longestMs: 1000, factor: 4 }, 3)).toBe(160);
  expect(backoffMs({ firstMs: 10, longestMs: 5 }, 1)).toBe(5);
});

test('pause ends after its time or on its signal, and never rejects', async () => {
  const keepAlive = setInterval(() => undefined, 1000);
  try {
    await pause(1);
    await pause(3_600_000, AbortSignal.abort());
    const left = new AbortController();
    const pausing = pause(3_600_000, left.signal);
    left.abort();
    await pausing;
  } finally {
    clearInterval(keepAlive);
  }
});

test('poll returns the first defined result, including false and null', async () => {
  let looks = 0;
  expect(await poll(10, 1, async () => (++looks === 3 ? 'found' : undefined))).toBe('found');
  expect(looks).toBe(3);
  expect(await poll(10, 1, async () => false)).toBe(false);
  expect(await poll(10, 1, async () => null)).toBeNull();
});

test('poll returns undefined after the last attempt, and passes errors on', async () => {
  let looks = 0;
  expect(await poll(3, 1, async () => void ++looks)).toBeUndefined();
  expect(looks).toBe(3);
  await expect(poll(3, 1, () => Promise.reject(new Error('own')))).rejects.toThrow('own');
});

test('poll makes the same number of attempts when its pauses grow', async () => {
  let looks = 0;
  expect(await poll(4, { firstMs: 1, longestMs: 2 }, async () => void ++looks)).toBeUndefined();
  expect(looks).toBe(4);
});

test('retry repeats failed work, counts the failures, and stops when the failure callback throws', async () => {
  const keepAlive = setInterval(() => undefined, 1000);
  try {
    const { signal } = new AbortController();
    const seen: [unknown, number][] = [];
    let tries = 0;
    const work = async () => {
      tries += 1;
      if (tries < 3) throw tries;
      return 'done';
    };
    const failed = (error: unknown, failures: number) => void seen.push([error, failures]);
    expect(await retry(work, { firstMs: 1, longestMs: 1 }, signal, failed)).toBe('done');
    expect(seen).toEqual([
      [1, 1],
      [2, 2],
    ]);
    const fail = () => Promise.reject(new Error('away'));
    const giveUp = (error: unknown) => {
      throw error;
    };
    await expect(retry(fail, { firstMs: 1, longestMs: 1 }, signal, giveUp)).rejects.toThrow('away');
  } finally {
    clearInterval(keepAlive);
  }
});
