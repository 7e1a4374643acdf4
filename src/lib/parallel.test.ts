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
