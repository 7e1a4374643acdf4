import { expect, test } from 'vitest';
import { endsWithin, raceWithin, withDeadline, within } from './deadline.ts';

test('within passes on the result or the error of a promise that settles in time', async () => {
  expect(await within(Promise.resolve(1), 1000, 'late')).toBe(1);
  await expect(within(Promise.reject(new Error('own')), 1000, 'late')).rejects.toThrow('own');
});

test('within fails with deadline_exceeded when the promise takes too long', async () => {
  const never = new Promise(() => undefined);
  await expect(within(never, 5, 'too late')).rejects.toMatchObject({ code: 'deadline_exceeded', message: 'too late' });
});

test('within fails with deadline_exceeded when its signal aborts or has already aborted', async () => {
  const left = new AbortController();
  const waiting = within(new Promise(() => undefined), 3_600_000, 'given up', left.signal);
  left.abort();
  await expect(waiting).rejects.toMatchObject({ code: 'deadline_exceeded', message: 'given up' });
  await expect(within(Promise.resolve(1), 3_600_000, 'given up', left.signal)).rejects.toThrow('given up');
});

test('within rejects with the error that its caller supplies', async () => {
  const own = new Error('own');
  await expect(within(new Promise(() => undefined), 1, () => own)).rejects.toBe(own);
});

test('within ignores a rejection that arrives after its deadline', async () => {
  let fail!: (error: Error) => void;
  const slow = new Promise<never>((_resolve, reject) => {
    fail = reject;
  });
  await expect(within(slow, 1, 'late')).rejects.toThrow('late');
  fail(new Error('nobody waits'));
  // An unhandled rejection would fail the run.
  await new Promise(resolve => setImmediate(resolve));
});

test('endsWithin reports whether a promise settles in time, and passes its error on', async () => {
  expect(await endsWithin(Promise.resolve(), 3_600_000)).toBe(true);
  expect(await endsWithin(new Promise(() => undefined), 1)).toBe(false);
  expect(await endsWithin(new Promise(() => undefined), 3_600_000, AbortSignal.abort())).toBe(false);
  await expect(endsWithin(Promise.reject(new Error('own')), 3_600_000)).rejects.toThrow('own');
});

test('withDeadline aborts its work when the caller aborts, until the work has ended', async () => {
  const caller = new AbortController();
  let seen: AbortSignal | undefined;
  const work = withDeadline(
    3_600_000,
    signal => {
      seen = signal;
      return new Promise<void>(resolve => signal.addEventListener('abort', () => resolve()));
    },
    caller.signal,
  );
  caller.abort('left');
  await work;
  expect(seen?.reason).toBe('left');
  const other = new AbortController();
  const signal = await withDeadline(3_600_000, async given => given, other.signal);
  other.abort();
  expect(signal.aborted).toBe(false);
});

test('withDeadline aborts its work at the deadline and not before', async () => {
  const aborted = await withDeadline(
    5,
    signal => new Promise<boolean>(resolve => signal.addEventListener('abort', () => resolve(signal.aborted))),
  );
  expect(aborted).toBe(true);
  expect(await withDeadline(3_600_000, async signal => signal.aborted)).toBe(false);
  await expect(withDeadline(3_600_000, () => Promise.reject(new Error('own')))).rejects.toThrow('own');
});

test('withDeadline aborts with the error of its caller, or with an AbortError', async () => {
  const late = new Error('too late');
  const work = (signal: AbortSignal) =>
    new Promise<never>((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  await expect(withDeadline(1, work, undefined, () => late)).rejects.toBe(late);
  await expect(withDeadline(1, work)).rejects.toMatchObject({ name: 'AbortError' });
});

test('raceWithin stops the losers when the race is won, times out or is aborted', async () => {
  const loser = (signal: AbortSignal) =>
    new Promise<string>(resolve => signal.addEventListener('abort', () => resolve('stopped')));
  let lost: Promise<string> | undefined;
  const won = await raceWithin(3_600_000, signal => {
    lost = loser(signal);
    return Promise.race([lost, Promise.resolve('won')]);
  });
  expect(won).toBe('won');
  expect(await lost).toBe('stopped');
  expect(await raceWithin(1, loser)).toBe('stopped');
  const caller = new AbortController();
  const waiting = raceWithin(3_600_000, loser, caller.signal);
  caller.abort();
  expect(await waiting).toBe('stopped');
});
