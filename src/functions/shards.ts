import { HELD_FOR_GOOD, type Lease } from '../core/lease.ts';
import { shardOf } from '../core/shard.ts';
import { functionUrnOf } from '../core/urn.ts';

/** The functions that this replica serves. A shard has one owner at a time: it scales, keeps the sessions and holds the maximum. */
export interface FunctionShards {
  /** The lease under which this replica serves the functions of a shard; null: another one does, or nobody yet, or it is being handed over. */
  held(shard: string): Lease | null;
}

/** All functions are this process's, for good: there is no other one. */
export const ALL_SHARDS: FunctionShards = { held: () => HELD_FOR_GOOD };

/** The shard of a function by its URN, or by that of one of its versions. */
export function shardOfUrn(urn: string): string {
  return shardOf(functionUrnOf(urn));
}
