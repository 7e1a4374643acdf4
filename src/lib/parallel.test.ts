import { expect, test } from 'vitest';
import { forEachOf } from './parallel.ts';

test('every item is worked on once, never more than so many at the same moment', async () => {
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

test('a failure comes through, and nothing begins behind it', async () => {
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

test('nothing to do is done at once', async () => {
  await forEachOf([], 3, () => Promise.reject(new Error('never')));
});
