/** The settings of a pool that a caller sends, under the names of the wire; unset texts are `''`, unset maps null. */
export interface PoolSpec {
  readonly id: string;
  readonly group: string;
  readonly reuse: boolean;
  readonly size: number;
  readonly max_size: number;
  readonly image: string;
  readonly init_image: string;
  readonly labels: Readonly<Record<string, string>> | null;
  readonly environment: Readonly<Record<string, string>> | null;
  readonly volumes: string;
  readonly volume_mounts: string;
  readonly resources: PoolResources;
  readonly affinities: string;
  readonly node_selector: Readonly<Record<string, string>> | null;
  readonly runtime_class_name: string;
  readonly tolerations: string;
  readonly horizontal_pod_autoscaler_spec: string;
  readonly topology_spread_constraints: string;
  /** Seconds; the one that counts. */
  readonly pod_pending_duration_threshold: number;
  /** Seconds; −1 = never, 0 = not configured. */
  readonly idle_recycle_time: { readonly reserved: number; readonly scaled: number };
  /** Whether `max_size` was above `size` when it was made; fixed since. */
  readonly scalable: boolean;
}

export interface PoolResources {
  readonly requests: Readonly<Record<string, string>>;
  readonly limits: Readonly<Record<string, string>>;
}

export interface Pool {
  readonly spec: PoolSpec;
  readonly status: PoolStatus;
  /** `Running`, or why it is not. */
  readonly msg: string;
  readonly readyCount: number;
}

export const POOL_STATUS = {
  new: 0,
  creating: 1,
  updateRequested: 2,
  updating: 3,
  running: 4,
  failed: 5,
  deleting: 6,
} as const;
export type PoolStatus = (typeof POOL_STATUS)[keyof typeof POOL_STATUS];

/** The message of a pool on which nothing acts yet. */
export const WAITING_MSG = 'waiting for a Kubernetes backend';

/**
 * Which state may follow which. The API makes `new`, `updateRequested` and `deleting`; the controller of a cluster the others. A pool
 * that the controller has not seen (`new`) is updated and deleted in place.
 */
const NEXT: Readonly<Record<PoolStatus, readonly PoolStatus[]>> = {
  [POOL_STATUS.new]: [POOL_STATUS.new, POOL_STATUS.creating],
  [POOL_STATUS.creating]: [
    POOL_STATUS.creating,
    POOL_STATUS.running,
    POOL_STATUS.failed,
    POOL_STATUS.updateRequested,
    POOL_STATUS.deleting,
  ],
  [POOL_STATUS.updateRequested]: [POOL_STATUS.updating, POOL_STATUS.deleting],
  [POOL_STATUS.updating]: [
    POOL_STATUS.updating,
    POOL_STATUS.running,
    POOL_STATUS.failed,
    POOL_STATUS.updateRequested,
    POOL_STATUS.deleting,
  ],
  [POOL_STATUS.running]: [
    POOL_STATUS.running,
    POOL_STATUS.updateRequested,
    POOL_STATUS.updating,
    POOL_STATUS.failed,
    POOL_STATUS.deleting,
  ],
  [POOL_STATUS.failed]: [
    POOL_STATUS.failed,
    POOL_STATUS.creating,
    POOL_STATUS.updateRequested,
    POOL_STATUS.updating,
    POOL_STATUS.running,
    POOL_STATUS.deleting,
  ],
  [POOL_STATUS.deleting]: [POOL_STATUS.deleting],
};

export function mayFollow(from: PoolStatus, to: PoolStatus): boolean {
  return NEXT[from].includes(to);
}

/** The states from which a pool may get to `to`. */
export function statesBefore(to: PoolStatus): PoolStatus[] {
  return Object.values(POOL_STATUS).filter(from => mayFollow(from, to));
}

/** The state that an update brings a pool to, or null when it takes none now. */
export function statusAfterUpdate(status: PoolStatus): PoolStatus | null {
  if (status === POOL_STATUS.new) return POOL_STATUS.new;
  return mayFollow(status, POOL_STATUS.updateRequested) ? POOL_STATUS.updateRequested : null;
}
