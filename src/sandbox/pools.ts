import type { PoolSpec } from '../core/pool.ts';

/**
 * Sandboxes that are kept ready, as a driver of a cluster has them (`SandboxDriver.pools`). It translates and never decides: the controller
 * (`src/pools/`) says what is to be done. What it shows comes out of a watch, so looking costs nothing. Errors are `ServiceError`s:
 * `unavailable` when the cluster does not answer, `invalid_request` or `failed_precondition` when it refuses, with its words.
 */
export interface PoolBackend {
  /** Watches from now on; resolves when all that there is has been seen. May be called again. */
  open(): Promise<void>;
  /** Whether what is shown is what the cluster has: false while the watch is broken. */
  readonly isCurrent: boolean;
  /** Ids of all pools of this installation of which the cluster has anything. */
  ids(): ReadonlySet<string>;
  view(poolId: string): PoolView;
  /** Calls back with the id of a pool each time that anything of it has changed; it is quick. The returned function ends it. */
  onChange(listener: (poolId: string) => void): () => void;

  /** Why a pool of this spec may not be made here, or null. Asks nobody. */
  refusal(spec: PoolSpec): string | null;
  /** How the pods of a pool keep away from those of other pools: JSON of what is added to its spec, `''` when nothing is. */
  antiAffinities(spec: PoolSpec): string;
  /** Makes the pool with so many pods, or makes it be as the spec says; its number of pods stays then. */
  apply(spec: PoolSpec, replicas: number): Promise<void>;
  /** Sets how many pods the pool keeps. False: it was not `from` any more, and nothing has changed. */
  scale(poolId: string, from: number, to: number): Promise<boolean>;
  /** How few pods the autoscaler may leave; for pools that have one. */
  keepAtLeast(poolId: string, replicas: number): Promise<void>;
  /** Takes a free pod out of service for good: nobody can claim it any more. False: it has changed meanwhile. */
  retire(pod: PoolPod): Promise<boolean>;
  /** Ends a pod. False: it has changed since it was seen so, and lives. */
  remove(pod: PoolPod): Promise<boolean>;
  /** The pool keeps no pods any more; those that there are live on. Absent = success. */
  disband(poolId: string): Promise<void>;
  /** Tells whoever looks at the cluster. Never fails. */
  warn(poolId: string, reason: string, message: string): Promise<void>;
}

/** What the cluster has of one pool. */
export interface PoolView {
  /** Null: it keeps no pods any more, and some of its pods are left. */
  readonly set: PoolSet | null;
  readonly pods: readonly PoolPod[];
}

/** What keeps the pods of a pool. */
export interface PoolSet {
  /** As it was made; null when it cannot be read. */
  readonly spec: PoolSpec | null;
  /** Made as this version of the service makes it from that spec. */
  readonly isUpToDate: boolean;
  /** How many pods it is to keep. */
  readonly replicas: number;
  /** What the cluster's own controller has seen at one moment, which may be behind the pods that are shown. */
  readonly seen: {
    /** It has seen the number that it is to keep. */
    readonly isCurrent: boolean;
    readonly pods: number;
    readonly ready: number;
    /** Of its pods those that are not retired. */
    readonly inService: number;
  };
  /** An autoscaler says how many pods it keeps. */
  readonly isAutoscaled: boolean;
  /** Why it cannot make pods, or null. */
  readonly problem: string | null;
  readonly isEnding: boolean;
}

export interface PoolPod {
  readonly name: string;
  readonly uid: string;
  /** Changes with every change of the pod. */
  readonly version: string;
  /** Counted by the pool. */
  readonly isMember: boolean;
  readonly isRetired: boolean;
  /** Of the instance that holds it; null: it is free. */
  readonly instanceId: string | null;
  /** `broken`: it ran, and can take no instance any more. `failed`: it has ended. `ending`: it is being deleted. */
  readonly state: 'pending' | 'ready' | 'broken' | 'failed' | 'ending';
  /** The cluster counts it as ready, whatever its state is here. */
  readonly isReady: boolean;
  /** Why it does not run, in words; `''` when nothing is known. */
  readonly problem: string;
  /** `problem` will not pass without somebody's doing. */
  readonly isHopeless: boolean;
  readonly createdAtMs: number;
  /** Since when it is free and ready; meaningless for others. */
  readonly restsSinceMs: number;
  /** An instance ran in it. */
  readonly isUsed: boolean;
  /** Made by the present template of its pool. */
  readonly isUpToDate: boolean;
}
