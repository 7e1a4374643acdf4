import { SHARD_NAMES } from '../core/lease.ts';
import type { Cluster, Joining, LeaseName, LeaseOwner, LivingNode } from './contract.ts';

/**
 * Returns the cluster of a single replica with an embedded database. It is always a member, owns everything,
 * and has no timers and no queries.
 */
export function singleReplica(self: Joining): Cluster {
  const nodes: readonly LivingNode[] = [{ ...self, epoch: 1, joinedAtMs: Date.now(), expiresInMs: 0 }];
  let owner: LeaseOwner | null = null;
  return {
    nodeId: self.id,
    membership: {
      isMember: () => true,
      fence: () => null,
      living: () => nodes,
      livesForMs: () => performance.now(),
      heartbeatAgeMs: () => 0,
    },
    shards: {
      holds: () => true,
      fence: () => null,
      ownerOf: () => nodes[0] ?? null,
      changes: { acquired: 0, released: 0, lost: 0 },
    },
    feed: { subscribe: () => () => undefined, publishing: writes => writes, behindMs: () => 0 },
    join: async () => undefined,
    own(given) {
      owner = given;
      for (const name of ALL) owner.onAcquired(name, 1);
    },
    async retire() {
      await Promise.all(owner === null ? [] : ALL.map(name => owner?.onReleasing(name)));
    },
    leave: async () => undefined,
  };
}

const ALL: readonly LeaseName[] = [...SHARD_NAMES, 'jobs', 'sweeper'];
