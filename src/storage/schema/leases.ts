/** Record of `leases`. The lease is held until the named life of its node ends. */
export interface LeaseTable {
  name: string;
  /** Empty: the lease is free. */
  node_id: string;
  node_epoch: number;
  /** Grows by 1 with each change of the holder. */
  epoch: number;
}
