import type { V1Pod, V1ReplicaSet } from '@kubernetes/client-node';
import { deadlineExceeded, unavailable } from '../../core/error.ts';
import type { PoolSpec } from '../../core/pool.ts';
import { backoffMs, pause } from '../../lib/backoff.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import type { KubernetesApi } from './cluster.ts';
import { type Outcome, PodChanges } from './pod-changes.ts';
import { specOf } from './pool-backend.ts';
import { FreePods, PoolGrowth } from './pool-capacity.ts';
import { choosePools, grows, type Needs } from './pool-choice.ts';
import type { Watched } from './watched.ts';

export interface ClaimSpec extends Needs {
  readonly instanceId: string;
}

/**
 * Result of a claim. `pod` null: no pool fits and the instance gets a pod of its own; its record stores
 * `reason`.
 */
export type Claim =
  | { readonly pod: V1Pod; readonly pool: PoolSpec }
  | { readonly pod: null; readonly pool: null; readonly reason: string };

export interface ClaimsOptions {
  readonly cluster: Pick<KubernetesApi, 'request' | 'namespace'>;
  /** All pods and all ReplicaSets of the installation. */
  readonly pods: Watched<V1Pod>;
  readonly replicaSets: Watched<V1ReplicaSet>;
  readonly installationId: string;
  /** Id of this replica of the service. */
  readonly nodeId: string;
  readonly defaultImage: string;
  /** Maximum wait of a create for a pod of a pool that grows. */
  readonly growWaitMs?: number;
}

interface Waiter {
  readonly spec: ClaimSpec;
  readonly onTry: (pod: V1Pod) => void;
  readonly pools: readonly PoolSpec[];
  readonly ids: readonly string[];
  /** True when one of its pools has grown for this waiter. */
  hasGrown: boolean;
  isTrying: boolean;
  /** Number of pods that other replicas claimed first. */
  losses: number;
  notBeforeMs: number;
  isOver: boolean;
  readonly resolve: (claim: Claim) => void;
  readonly reject: (error: Error) => void;
}

const GROW_WAIT_MS = 120_000;
/**
 * Limit on concurrent claim patches, so that claims of other replicas are seen before further patches are
 * sent.
 */
const MAX_TRYING = 32;
/** Limit on concurrent claim patches for pods that other replicas would claim first. */
const MAX_TRYING_OTHERS = 4;
/**
 * Number of losses after which a waiter backs off. Other claims then finish, so that its next try usually
 * succeeds.
 */
const LOSSES = 2;
const LOST_AGAIN = { firstMs: 150, longestMs: 1_000 };
const GROW_AGAIN_MS = 1_000;

/**
 * Claims pods of pools for instances and releases them. A claim is one patch, which applies only to the
 * version of the pod that was seen; so one replica wins. Creates without a free pod wait in order of arrival.
 */
export class Claims {
  readonly #options: ClaimsOptions;
  readonly #free: FreePods;
  readonly #changes: PodChanges;
  readonly #growth: PoolGrowth;
  readonly #waiting: Waiter[] = [];
  #trying = 0;
  #isServing = false;
  #isClosed = false;
  readonly #end: () => void;

  constructor(options: ClaimsOptions) {
    this.#options = options;
    this.#free = new FreePods(options);
    this.#changes = new PodChanges(options);
    this.#growth = new PoolGrowth(options);
    const ends = [this.#free.onChange(() => this.#serveSoon()), options.replicaSets.subscribe(() => this.#serveSoon())];
    this.#end = () => {
      for (const end of ends) end();
      this.#free.close();
    };
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /**
   * Claims a free pod of a fitting pool; waits while there is none. Costs one request, unless another replica
   * claims the same pod at that moment. Calls `onTry` with each pod while its claim request is pending. Fails
   * with `deadline_exceeded` (`no pod of pool <id> …`) when no pod became free in time. On failure nothing is
   * claimed.
   */
  async claim(spec: ClaimSpec, signal: AbortSignal, onTry: (pod: V1Pod) => void = () => undefined): Promise<Claim> {
    if (this.#isClosed) throw unavailable('the kubernetes driver is closed');
    const { pools, reason } = choosePools(spec, this.#pools(), this.#options.defaultImage);
    if (pools.length === 0) return { pod: null, pool: null, reason };
    return await this.#wait(spec, pools, signal, onTry);
  }

  /**
   * Releases the pod of an ended instance with one request. A clean pod returns to its pool if the pool
   * reuses pods; any other pod is deleted. `isClean`: nothing of the instance is left in the pod. Succeeds
   * when the pod does not exist or belongs to another instance.
   */
  async release(pod: V1Pod, { isClean }: { readonly isClean: boolean }): Promise<void> {
    await this.#changes.release(pod, isClean);
  }

  /**
   * Returns the extra time that a create may wait for a pod. `growWaitMs` (120 s) if a fitting pool can grow,
   * else 0. Sends no request.
   */
  waitsMs(spec: ClaimSpec): number {
    const { pools } = choosePools(spec, this.#pools(), this.#options.defaultImage);
    return pools.some(grows) ? this.#growWaitMs : 0;
  }

  /** Fails all waiting creates. */
  close(): void {
    this.#isClosed = true;
    this.#end();
    for (const waiter of [...this.#waiting]) this.#over(waiter, unavailable('the kubernetes driver is closed'));
  }

  get #growWaitMs(): number {
    return this.#options.growWaitMs ?? GROW_WAIT_MS;
  }

  /** Returns the specs of all pools that are not being deleted. */
  #pools(): PoolSpec[] {
    return [...this.#options.replicaSets.all()].flatMap(set => {
      const spec = set.metadata?.deletionTimestamp === undefined ? specOf(set) : null;
      return spec === null ? [] : [spec];
    });
  }

  #wait(spec: ClaimSpec, pools: readonly PoolSpec[], signal: AbortSignal, onTry: (pod: V1Pod) => void): Promise<Claim> {
    const growing = pools.find(grows);
    const named = (growing ?? pools[0])?.id;
    return new Promise((resolve, reject) => {
      let letGo: () => void = () => undefined;
      const settle = () => {
        clearTimeout(timer);
        letGo();
      };
      const waiter: Waiter = {
        ...{ spec, onTry, pools, ids: pools.map(({ id }) => id), hasGrown: false, isTrying: false, isOver: false },
        ...{ losses: 0, notBeforeMs: 0 },
        resolve: claim => {
          settle();
          resolve(claim);
        },
        reject: error => {
          settle();
          reject(error);
        },
      };
      const seconds = this.#growWaitMs / 1000;
      const late = () =>
        this.#over(waiter, deadlineExceeded(`no pod of pool ${named} became available in ${seconds} s`));
      const timer = growing === undefined ? undefined : setTimeout(late, this.#growWaitMs);
      letGo = onAbort(signal, () =>
        this.#over(waiter, deadlineExceeded(`no pod of pool ${named} became free in time`, { cause: signal.reason })),
      );
      if (waiter.isOver) return;
      this.#waiting.push(waiter);
      this.#serve();
    });
  }

  /** Fails a waiter. A pending claim of the waiter releases its pod itself when it ends. */
  #over(waiter: Waiter, error: Error): void {
    if (waiter.isOver) return;
    waiter.isOver = true;
    this.#remove(waiter);
    waiter.reject(error);
  }

  #remove(waiter: Waiter): void {
    const at = this.#waiting.indexOf(waiter);
    if (at !== -1) this.#waiting.splice(at, 1);
  }

  /** Runs `#serve` once for all changes of a tick. */
  #serveSoon(): void {
    if (this.#isServing || this.#waiting.length === 0) return;
    this.#isServing = true;
    queueMicrotask(() => {
      this.#isServing = false;
      this.#serve();
    });
  }

  #serve(): void {
    const empty = new Set<string>();
    const nowMs = performance.now();
    for (const waiter of [...this.#waiting]) {
      if (this.#trying >= MAX_TRYING) return;
      if (waiter.isTrying || waiter.isOver || waiter.notBeforeMs > nowMs) continue;
      for (const pool of waiter.pools) {
        if (empty.has(pool.id)) continue;
        const pod = this.#free.reserve(pool.id, this.#trying < MAX_TRYING_OTHERS);
        if (pod === undefined) {
          empty.add(pool.id);
          continue;
        }
        void this.#try(waiter, pool, pod);
        break;
      }
    }
    this.#grow();
  }

  async #try(waiter: Waiter, pool: PoolSpec, pod: V1Pod): Promise<void> {
    waiter.isTrying = true;
    this.#trying += 1;
    let outcome: Outcome;
    try {
      const asked = this.#changes.claim(pod, waiter.spec.instanceId, pool.reuse);
      waiter.onTry(pod);
      outcome = await asked;
    } catch (error) {
      outcome = { isOurs: false, error: error as Error };
    }
    this.#trying -= 1;
    waiter.isTrying = false;
    // A pod that another replica has claimed is skipped until the watch reports the change.
    this.#free.endReservation(pod, { isLost: !outcome.isOurs && outcome.error === undefined });
    if (outcome.isOurs) this.#won(waiter, pool, outcome.pod);
    else if (outcome.error !== undefined) this.#over(waiter, outcome.error);
    else this.#lost(waiter);
    this.#serveSoon();
  }

  #lost(waiter: Waiter): void {
    waiter.losses += 1;
    if (waiter.losses < LOSSES) return;
    const waitMs = backoffMs(LOST_AGAIN, waiter.losses - LOSSES + 1);
    waiter.notBeforeMs = performance.now() + waitMs;
    setTimeout(() => this.#serveSoon(), waitMs + 1).unref();
  }

  #won(waiter: Waiter, pool: PoolSpec, pod: V1Pod): void {
    if (!waiter.isOver) {
      waiter.isOver = true;
      this.#remove(waiter);
      waiter.resolve({ pod, pool });
      return;
    }
    // The create has been given up, and the pod is unused.
    this.#changes.release(pod, true).catch(() => undefined);
  }

  /**
   * Grows pools. Each waiting create adds at most one pod to one pool, and the first waiter gets the new pod.
   */
  #grow(): void {
    const wanted = new Map<string, Waiter[]>();
    for (const waiter of this.#waiting) {
      if (waiter.isTrying) continue;
      const pool = waiter.pools.find(each => grows(each) && this.#growth.room(each.id) > 0);
      if (pool === undefined) continue;
      const waiters = wanted.get(pool.id) ?? [];
      waiters.push(waiter);
      wanted.set(pool.id, waiters);
    }
    for (const [poolId, waiters] of wanted) {
      const fresh = waiters.filter(({ hasGrown }) => !hasGrown);
      if (fresh.length > 0) void this.#growFor(poolId, waiters.length, fresh);
    }
  }

  async #growFor(poolId: string, waiting: number, fresh: readonly Waiter[]): Promise<void> {
    try {
      const by = await this.#growth.want(poolId, waiting, fresh.length);
      for (const waiter of fresh.slice(0, by)) waiter.hasGrown = true;
      // Pods may have become free meanwhile.
      if (by > 0) this.#serveSoon();
    } catch {
      // The cluster does not answer. Waiting creates remain until it does.
      await pause(GROW_AGAIN_MS);
      this.#serveSoon();
    }
  }
}
