import { expect, test } from 'vitest';
import { internal, unavailable } from '../../core/error.ts';
import { untilWritten } from './until-written.ts';

const NEVER = new AbortController().signal;

test('untilWritten retries temporary failures and reports only the first one', async () => {
  const failures = [unavailable('the disk is full'), Object.assign(new Error('no room'), { code: 'ENOSPC' })];
  const told: unknown[] = [];
  const write = async () => {
    const failure = failures.shift();
    if (failure) throw failure;
    return 'written';
  };
  expect(await untilWritten(write, NEVER, error => told.push(error))).toBe('written');
  expect(told).toEqual([expect.objectContaining({ message: 'the disk is full' })]);
});

test('untilWritten fails at once on a permanent failure', async () => {
  const write = () => Promise.reject(internal('the thread has ended'));
  await expect(untilWritten(write, NEVER, () => undefined)).rejects.toThrow('the thread has ended');
});

test('untilWritten stops when its signal aborts', async () => {
  const over = new AbortController();
  const waiting = untilWritten(
    () => Promise.reject(unavailable('the disk is full')),
    over.signal,
    () => over.abort(),
  );
  await expect(waiting).rejects.toThrow('the disk is full');
});
