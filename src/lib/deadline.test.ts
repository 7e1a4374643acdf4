import { expect, test } from 'vitest';
import { withDeadline, within } from './deadline.ts';

test('a promise within its time is passed on, however it ends', async () => {
  expect(await within(Promise.resolve(1), 1000, 'late')).toBe(1);
  await expect(within(Promise.reject(new Error('own')), 1000, 'late')).rejects.toThrow('own');
});

test('a promise beyond its time is deadline_exceeded', async () => {
  const never = new Promise(() => undefined);
  await expect(within(never, 5, 'too late')).rejects.toMatchObject({ code: 'deadline_exceeded', message: 'too late' });
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
