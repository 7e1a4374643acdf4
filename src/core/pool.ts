/**
 * The settings of a pool that a caller sends, under the names of the wire. Unset texts are `''`, unset maps
 * null.
 */
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
  /** Seconds in force: 0 was replaced by the default. */
  readonly pod_pending_duration_threshold: number;
  /** Seconds; −1: never, 0: not configured. */
  readonly idle_recycle_time: { readonly reserved: number; readonly scaled: number };
  /** True if `max_size` exceeded `size` at creation. Never changes afterwards. */
  readonly scalable: boolean;
}

export interface PoolResources {
  readonly requests: Readonly<Record<string, string>>;
  readonly limits: Readonly<Record<string, string>>;
}

export interface Pool {
  readonly spec: PoolSpec;
  readonly status: PoolStatus;
  /** `Running`, or the reason why the pool does not run. */
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

/** The message of a pool before any controller manages it. */
export const WAITING_MSG = 'waiting for a Kubernetes backend';

/**
 * Allowed transitions between states. The API sets `new`, `updateRequested` and `deleting`; a cluster's
 * controller sets the others. A pool that the controller has not seen (`new`) is updated and deleted in
 * place.
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

/** Returns the states from which a pool may enter `to`. */
export function statesBefore(to: PoolStatus): PoolStatus[] {
  return Object.values(POOL_STATUS).filter(from => mayFollow(from, to));
}

/** Returns the state after an update, or null when the pool accepts no update now. */
export function statusAfterUpdate(status: PoolStatus): PoolStatus | null {
  if (status === POOL_STATUS.new) return POOL_STATUS.new;
  return mayFollow(status, POOL_STATUS.updateRequested) ? POOL_STATUS.updateRequested : null;
}
