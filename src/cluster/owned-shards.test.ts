import { expect, test, vi } from 'vitest';
import type { LeaseName, Shards } from './contract.ts';
import { OwnedShards } from './owned-shards.ts';

/** Makes a node that holds the leases that the test acquires. */
function node() {
  const held = new Set<string>();
  const shards: Pick<Shards, 'holds' | 'fence'> = {
    holds: name => held.has(name),
    fence: name => ({ name, epoch: 1, nodeId: 'a', nodeEpoch: 1 }),
  };
  const owned = new OwnedShards(shards as Shards, 5000);
  const told: string[] = [];
  const listener = (name: string) => ({
    acquired: async (names: readonly string[]) => void told.push(`${name} acquired ${names}`),
    release: async (names: readonly string[], ms: number) => void told.push(`${name} release ${names} ${ms}`),
    lost: (names: readonly string[]) => void told.push(`${name} lost ${names}`),
  });
  owned.setListeners([listener('one'), listener('two')], () => void told.push('other'));
  const acquire = (name: LeaseName) => {
    held.add(name);
    owned.onAcquired(name);
  };
  return { owned, held, told, acquire };
}

test('listeners are notified once of shards acquired together, in order, and of losses in reverse order', async () => {
  const { owned, told, acquire } = node();
  acquire('shard-01');
  acquire('shard-02');
  await vi.waitFor(() => expect(told).toHaveLength(2));
  await owned.onReleasing('shard-01');
  owned.onLost('shard-02');
  expect(told).toEqual([
    'one acquired shard-01,shard-02',
    'two acquired shard-01,shard-02',
    'two release shard-01 5000',
    'one release shard-01 5000',
    'two lost shard-02',
    'one lost shard-02',
  ]);
});

test('a shard is no longer served while its lease is being released', async () => {
  const { owned, acquire } = node();
  acquire('shard-01');
  const lease = owned.held('shard-01');
  expect(lease?.isHeld()).toBe(true);
  const releasing = owned.onReleasing('shard-01');
  expect(owned.held('shard-01')).toBeNull();
  await releasing;
});

test('a shard that was lost and acquired again has a new lease', () => {
  const { owned, held, acquire } = node();
  acquire('shard-01');
  const before = owned.held('shard-01');
  owned.onLost('shard-01');
  held.delete('shard-01');
  acquire('shard-01');
  expect([before?.isHeld(), owned.held('shard-01')?.isHeld()]).toEqual([false, true]);
});

test('a lost lease counts as not held before the loss is reported', () => {
  const { owned, held, acquire } = node();
  acquire('shard-01');
  held.clear();
  expect(owned.held('shard-01')?.isHeld()).toBe(false);
});

test('leases other than shards are reported to the separate listener', async () => {
  const { owned, told, acquire } = node();
  acquire('jobs');
  await owned.onReleasing('jobs');
  owned.onLost('jobs');
  expect(told).toEqual(['other', 'other']);
  expect(owned.held('jobs')).toBeNull();
});
