import { expect, test } from 'vitest';
import { mayFollow, POOL_STATUS, statesBefore, statusAfterUpdate } from './pool.ts';

const { new: fresh, creating, updateRequested, updating, running, failed, deleting } = POOL_STATUS;

test('an update asks for itself, but in place where nothing has begun, and not while one waits or the pool is deleting', () => {
  expect(statusAfterUpdate(fresh)).toBe(fresh);
  for (const status of [creating, updating, running, failed]) expect(statusAfterUpdate(status)).toBe(updateRequested);
  for (const status of [updateRequested, deleting]) expect(statusAfterUpdate(status)).toBeNull();
});

test('a pool that is deleting stays so', () => {
  expect(Object.values(POOL_STATUS).filter(to => mayFollow(deleting, to))).toEqual([deleting]);
});

test('a pool runs after it was created, updated or has recovered', () => {
  expect(statesBefore(running).sort()).toEqual([creating, updating, running, failed].sort());
});
