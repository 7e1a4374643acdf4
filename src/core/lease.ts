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
