import { expect, test } from 'vitest';
import { forEachOf } from './parallel.ts';

test('forEachOf processes every item once, with at most three at a time', async () => {
  const done: number[] = [];
  let running = 0;
  let most = 0;
  await forEachOf([1, 2, 3, 4, 5, 6, 7], 3, async item => {
    most = Math.max(most, ++running);
    await new Promise(resolve => setImmediate(resolve));
    running--;
    done.push(item);
  });
  expect(done).toEqual([1, 2, 3, 4, 5, 6, 7]);
  expect(most).toBe(3);
});

test('forEachOf rejects on a failure and starts no further items', async () => {
  const begun: number[] = [];
  const work = forEachOf([1, 2, 3, 4, 5, 6], 2, async item => {
    begun.push(item);
    await new Promise(resolve => setImmediate(resolve));
    if (item === 2) throw new Error('two');
  });
  await expect(work).rejects.toThrow('two');
  await new Promise(resolve => setImmediate(resolve));
  await new Promise(resolve => setImmediate(resolve));
  expect(begun.length).toBeLessThanOrEqual(3);
});

test('forEachOf resolves for an empty list without calling its work', async () => {
  await forEachOf([], 3, () => Promise.reject(new Error('never')));
});
