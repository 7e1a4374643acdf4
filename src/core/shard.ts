/** Functions are shared out among replicas by this many shards. */
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
 * The shard of a function, by its URN without a version: FNV-1a of 32 bits over the characters, folded to 16 bits, modulo the number of
 * shards. All replicas have to agree, and stored rows name shards, so it is never changed.
 */
export function shardOf(functionUrn: string): ShardName {
  let hash = OFFSET_BASIS;
  // A URN has ASCII only.
  for (let at = 0; at < functionUrn.length; at++) hash = Math.imul(hash ^ functionUrn.charCodeAt(at), PRIME);
  const folded = (hash >>> 16) ^ (hash & 0xffff);
  return SHARD_NAMES[folded % SHARD_COUNT] as ShardName;
}
