import type { PoolStatus } from '../../core/pool.ts';

/** Record of `pools`. Pools belong to the cluster, not to a tenant. */
export interface PoolTable {
  id: string;
  pool_group: string;
  /** Newest change first is `change_seq` descending. */
  change_seq: number;
  status: PoolStatus;
  msg: string;
  ready_count: number;
  /** JSON of `PoolSpec`. */
  spec: string;
}
