import { expect, test } from 'vitest';
import { forEachOf, linkedTo, withDeadline, within } from './bounded.ts';

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

test('a linked controller aborts with its parent and its reason, at once when that is aborted already', () => {
  const parent = new AbortController();
  const { controller } = linkedTo(parent.signal);
  expect(controller.signal.aborted).toBe(false);
  parent.abort('why');
  expect(controller.signal.reason).toBe('why');
  expect(linkedTo(parent.signal).controller.signal.reason).toBe('why');
});

test('a linked controller aborts by itself, and no more with its parent once it is unlinked', () => {
  const parent = new AbortController();
  const own = linkedTo(parent.signal);
  own.controller.abort('own');
  expect(parent.signal.aborted).toBe(false);
  const { controller, unlink } = linkedTo(parent.signal);
  unlink();
  parent.abort();
  expect(controller.signal.aborted).toBe(false);
});

test('work under a deadline is told when its time is over, and leaves no timer when it ends before', async () => {
  const aborted = await withDeadline(
    5,
    signal => new Promise<boolean>(resolve => signal.addEventListener('abort', () => resolve(signal.aborted))),
  );
  expect(aborted).toBe(true);
  expect(await withDeadline(3_600_000, async signal => signal.aborted)).toBe(false);
  await expect(withDeadline(3_600_000, () => Promise.reject(new Error('own')))).rejects.toThrow('own');
});
