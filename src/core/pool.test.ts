import { expect, test } from 'vitest';
import { mayFollow, POOL_STATUS, statesBefore, statusAfterUpdate } from './pool.ts';

const { new: fresh, creating, updateRequested, updating, running, failed, deleting } = POOL_STATUS;

test('statusAfterUpdate keeps a new pool new, and returns null while deleting or with an update pending', () => {
  expect(statusAfterUpdate(fresh)).toBe(fresh);
  for (const status of [creating, updating, running, failed]) expect(statusAfterUpdate(status)).toBe(updateRequested);
  for (const status of [updateRequested, deleting]) expect(statusAfterUpdate(status)).toBeNull();
});

test('a deleting pool changes to no other status', () => {
  expect(Object.values(POOL_STATUS).filter(to => mayFollow(deleting, to))).toEqual([deleting]);
});

test('a pool becomes running after creating, updating or failed', () => {
  expect(statesBefore(running).sort()).toEqual([creating, updating, running, failed].sort());
});
