import { expect, test } from 'vitest';
import { backoffMs, pause, poll } from './backoff.ts';

test('pauses grow from the first to the longest, and stay there', () => {
  const pauses = [1, 2, 3, 4, 5, 2000].map(failures => backoffMs({ firstMs: 100, longestMs: 1000 }, failures));
  expect(pauses).toEqual([100, 200, 400, 800, 1000, 1000]);
  expect(backoffMs({ firstMs: 10, longestMs: 1000, factor: 4 }, 3)).toBe(160);
  expect(backoffMs({ firstMs: 10, longestMs: 5 }, 1)).toBe(5);
});

test('a pause ends with its time or its signal, and never fails', async () => {
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

test('a result ends the looking; false and null are results', async () => {
  let looks = 0;
  expect(await poll(10, 1, async () => (++looks === 3 ? 'found' : undefined))).toBe('found');
  expect(looks).toBe(3);
  expect(await poll(10, 1, async () => false)).toBe(false);
  expect(await poll(10, 1, async () => null)).toBeNull();
});

test('nothing found is undefined after so many looks, and what fails comes through', async () => {
  let looks = 0;
  expect(await poll(3, 1, async () => void ++looks)).toBeUndefined();
  expect(looks).toBe(3);
  await expect(poll(3, 1, () => Promise.reject(new Error('own')))).rejects.toThrow('own');
});

test('pauses between looks may grow; they are as many', async () => {
  let looks = 0;
  expect(await poll(4, { firstMs: 1, longestMs: 2 }, async () => void ++looks)).toBeUndefined();
  expect(looks).toBe(4);
});
