import { HELD_FOR_GOOD, type Lease, shardOf } from '../core/lease.ts';
import { functionUrnOf } from '../core/urn.ts';

/**
 * Tells which functions this replica serves. A shard has one owner at a time, which scales, keeps the
 * sessions and applies the maximum.
 */
export interface FunctionShards {
  /**
   * Returns the lease under which this replica serves the functions of a shard. Null when another replica or
   * none has the shard, or while it is being transferred.
   */
  held(shard: string): Lease | null;
}

/** Ownership of all functions, for a process without other replicas. */
export const ALL_SHARDS: FunctionShards = { held: () => HELD_FOR_GOOD };

/** Returns the shard of a function, from its URN or from the URN of a version. */
export function shardOfUrn(urn: string): string {
  return shardOf(functionUrnOf(urn));
}
