import { expect, test, vi } from 'vitest';
import { SHARD_NAMES } from '../core/lease.ts';
import type { LeaseName } from './contract.ts';
import { singleReplica } from './membership.ts';

test('a single replica holds every lease immediately, has no fence and starts no timer', async () => {
  const timers = vi.spyOn(globalThis, 'setTimeout');
  const cluster = singleReplica({ id: 'a', advertise: '', roles: ['worker'], version: '1' });
  const acquired: LeaseName[] = [];
  const released: LeaseName[] = [];
  await cluster.join();
  cluster.setLeaseOwner({
    onAcquired: name => void acquired.push(name),
    onReleasing: async name => void released.push(name),
    onLost: () => expect.unreachable(),
  });
  expect(acquired).toEqual([...SHARD_NAMES, 'jobs', 'sweeper']);
  expect(cluster.shards.holds('shard-07')).toBe(true);
  expect(cluster.shards.fence('jobs')).toBeNull();
  expect(cluster.membership.fence()).toBeNull();
  expect(cluster.shards.ownerOf('shard-07')?.id).toBe('a');
  expect(cluster.feed.behindMs()).toBe(0);
  const writes = { write: vi.fn(), problem: () => null, close: vi.fn() };
  expect(cluster.feed.publishing(writes)).toBe(writes);
  await cluster.retire();
  expect(released).toEqual(acquired);
  await cluster.leave();
  expect(timers).not.toHaveBeenCalled();
  timers.mockRestore();
});
