import { expect, test } from 'vitest';
import { forEachOf, within } from './bounded.ts';

test('a promise within its time is passed on, however it ends', async () => {
  expect(await within(Promise.resolve(1), 1000, 'late')).toBe(1);
  await expect(within(Promise.reject(new Error('own')), 1000, 'late')).rejects.toThrow('own');
});

test('a promise beyond its time is deadline_exceeded', async () => {
  const never = new Promise(() => undefined);
  await expect(within(never, 5, 'too late')).rejects.toMatchObject({ code: 'deadline_exceeded', message: 'too late' });
});

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
