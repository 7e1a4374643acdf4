/**
 * Proof that a node held a lease, for writes that it does as the owner: each is checked against it in its own transaction, so that a replica
 * that slept changes nothing that it lost. Plain data.
 */
export interface LeaseFence {
  readonly name: string;
  /** One more with each change of hands. */
  readonly epoch: number;
  readonly nodeId: string;
  /** One more with each start of the node. */
  readonly nodeEpoch: number;
}

/** The right to act for something that one replica has at a time (`shard-07`, `jobs`). */
export interface Lease {
  /** Null where there is one process and one database: nobody could take it over. */
  readonly fence: LeaseFence | null;
  /** As far as this process knows now; without a query. */
  isHeld(): boolean;
}

export const HELD_FOR_GOOD: Lease = { fence: null, isHeld: () => true };
