/**
 * Proof that a node held a lease, for writes of the owner. Each write checks the fence in its own
 * transaction, so that a replica that slept cannot write after losing the lease. Plain data.
 */
export interface LeaseFence {
  readonly name: string;
  /** Increases by one with each change of owner. */
  readonly epoch: number;
  readonly nodeId: string;
  /** Increases by one with each start of the node. */
  readonly nodeEpoch: number;
}

/** Exclusive right of a replica to act for a resource (`shard-07`, `jobs`). */
export interface Lease {
  /** Null with one process and one database, where no other replica could take the lease. */
  readonly fence: LeaseFence | null;
  /** Returns the current state in memory, without a query. */
  isHeld(): boolean;
}

export const HELD_FOR_GOOD: Lease = { fence: null, isHeld: () => true };

/** Number of shards that distribute functions among replicas. */
export const SHARD_COUNT = 64;

export type ShardName = `shard-${string}`;

/** The shards, by the names of their leases. */
export const SHARD_NAMES: readonly ShardName[] = Array.from(
  { length: SHARD_COUNT },
  (_, index): ShardName => `shard-${String(index).padStart(2, '0')}`,
);

const OFFSET_BASIS = 0x811c_9dc5;
const PRIME = 0x0100_0193;

/**
 * Returns the shard of a function from its URN without a version. The hash is FNV-1a of 32 bits over the
 * characters, folded to 16 bits, modulo the number of shards. All replicas must agree and stored records name
 * shards, so the hash never changes.
 */
export function shardOf(functionUrn: string): ShardName {
  let hash = OFFSET_BASIS;
  // A URN contains only ASCII.
  for (let at = 0; at < functionUrn.length; at++) hash = Math.imul(hash ^ functionUrn.charCodeAt(at), PRIME);
  const folded = (hash >>> 16) ^ (hash & 0xffff);
  return SHARD_NAMES[folded % SHARD_COUNT] as ShardName;
}
