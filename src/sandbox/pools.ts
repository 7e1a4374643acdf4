import type { PoolSpec } from '../core/pool.ts';

/**
 * Sandboxes that a cluster's driver keeps ready (`SandboxDriver.pools`).
 * The backend translates and never decides: the controller (`src/pools/`) decides. It reads from a watch, so
 * that reads are free. Errors are `ServiceError`s: `unavailable` when the cluster does not answer,
 * `invalid_request` or `failed_precondition` with the cluster's message when it refuses.
 */
export interface PoolBackend {
  /** Starts the watch. Resolves when all existing objects have been seen. May be called again. */
  open(): Promise<void>;
  /** True while the watch works, so that the view matches the cluster. */
  readonly isCurrent: boolean;
  /** Returns the ids of all pools of this installation that have any object in the cluster. */
  ids(): ReadonlySet<string>;
  view(poolId: string): PoolView;
  /**
   * Calls `listener` with a pool's id after each change of the pool; the listener must be quick. Returns
   * unsubscribe.
   */
  onChange(listener: (poolId: string) => void): () => void;

  /** Returns the reason a pool of this spec cannot be created here, or null. Uses cached information only. */
  refusal(spec: PoolSpec): string | null;
  /**
   * Returns the JSON that keeps this pool's pods away from those of other pools; `''` when nothing is added.
   */
  antiAffinities(spec: PoolSpec): string;
  /**
   * Creates the pool with `replicas` pods, or updates an existing pool to the spec without changing its size.
   */
  apply(spec: PoolSpec, replicas: number): Promise<void>;
  /**
   * Sets the number of pods that the pool keeps. Returns false, without a change, if the number was no longer
   * `from`.
   */
  scale(poolId: string, from: number, to: number): Promise<boolean>;
  /** Sets the autoscaler's minimum number of pods; for pools that have an autoscaler. */
  keepAtLeast(poolId: string, replicas: number): Promise<void>;
  /**
   * Takes a free pod out of service for good, so that no instance can claim it. Returns false if the pod has
   * changed.
   */
  retire(pod: PoolPod): Promise<boolean>;
  /** Deletes a pod. Returns false, and leaves the pod alone, if it has changed since it was read. */
  remove(pod: PoolPod): Promise<boolean>;
  /** Stops the pool from keeping pods; existing pods continue. A missing pool counts as success. */
  disband(poolId: string): Promise<void>;
  /** Publishes a warning event in the cluster. Never fails. */
  warn(poolId: string, reason: string, message: string): Promise<void>;
}

/** The objects that the cluster has for a pool. */
export interface PoolView {
  /** The controller object of the pool; null: it was removed, and some of the pool's pods are left. */
  readonly set: PoolSet | null;
  readonly pods: readonly PoolPod[];
}

/** The cluster object that keeps the pods of a pool. */
export interface PoolSet {
  /** The spec from which the set was created; null when it cannot be read. */
  readonly spec: PoolSpec | null;
  /** True when this version of the service would create the same object from that spec. */
  readonly isUpToDate: boolean;
  /** Desired number of pods. */
  readonly replicas: number;
  /** Status that the cluster's own controller last reported; it may be older than `pods`. */
  readonly seen: {
    /** True when the controller has seen the desired number. */
    readonly isCurrent: boolean;
    readonly pods: number;
    readonly ready: number;
    /** Number of its pods that are not retired. */
    readonly inService: number;
  };
  /** True when an autoscaler sets the number of pods. */
  readonly isAutoscaled: boolean;
  /** The reason the set cannot create pods, or null. */
  readonly problem: string | null;
  readonly isEnding: boolean;
}

export interface PoolPod {
  readonly name: string;
  readonly uid: string;
  /** Resource version: changes with every change of the pod. */
  readonly version: string;
  /** True when the pool counts the pod. */
  readonly isMember: boolean;
  readonly isRetired: boolean;
  /** Id of the instance that holds the pod; null: the pod is free. */
  readonly instanceId: string | null;
  /**
   * `broken`: it ran, and can take no instance any more. `failed`: it has ended. `ending`: it is being
   * deleted.
   */
  readonly state: 'pending' | 'ready' | 'broken' | 'failed' | 'ending';
  /** True when the cluster counts the pod as ready, whatever `state` says. */
  readonly isReady: boolean;
  /** The reason the pod does not run, in words; `''` when none is known. */
  readonly problem: string;
  /** True when `problem` needs an operator's action. */
  readonly isHopeless: boolean;
  readonly createdAtMs: number;
  /** Time since which the pod has been free and ready; meaningless in other states. */
  readonly restsSinceMs: number;
  /** True when an instance has run in the pod. */
  readonly isUsed: boolean;
  /** True when the pool's present template made the pod. */
  readonly isUpToDate: boolean;
}
