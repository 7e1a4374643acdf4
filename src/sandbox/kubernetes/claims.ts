import type { V1Pod, V1ReplicaSet } from '@kubernetes/client-node';
import { deadlineExceeded, unavailable } from '../../core/error.ts';
import type { PoolSpec } from '../../core/pool.ts';
import { backoffMs, pause } from '../../lib/backoff.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import type { Cluster } from './cluster.ts';
import { FreePods } from './free-pods.ts';
import { type Outcome, PodChanges } from './pod-changes.ts';
import { specOf } from './pool-backend.ts';
import { choosePools, grows, type Needs } from './pool-choice.ts';
import { PoolGrowth } from './pool-growth.ts';
import type { Watched } from './watched.ts';

export interface ClaimSpec extends Needs {
  readonly instanceId: string;
}

/** `pod` null: no pool fits, and the instance gets a pod of its own; `reason` is the sentence for its record. */
export type Claim =
  | { readonly pod: V1Pod; readonly pool: PoolSpec }
  | { readonly pod: null; readonly pool: null; readonly reason: string };

export interface ClaimsOptions {
  readonly cluster: Pick<Cluster, 'request' | 'namespace'>;
  /** All pods and all ReplicaSets of the installation. */
  readonly pods: Watched<V1Pod>;
  readonly replicaSets: Watched<V1ReplicaSet>;
  readonly installationId: string;
  /** This replica of the service. */
  readonly nodeId: string;
  readonly defaultImage: string;
  /** How long a create waits for a pod of a pool that grows. */
  readonly growWaitMs?: number;
}

interface Waiter {
  readonly spec: ClaimSpec;
  readonly onTry: (pod: V1Pod) => void;
  readonly pools: readonly PoolSpec[];
  readonly ids: readonly string[];
  /** One of its pools was asked to grow for it. */
  hasGrown: boolean;
  isTrying: boolean;
  /** Pods that others took first. */
  losses: number;
  notBeforeMs: number;
  isOver: boolean;
  readonly resolve: (claim: Claim) => void;
  readonly reject: (error: Error) => void;
}

const GROW_WAIT_MS = 120_000;
/** Patches under way: what others take meanwhile is seen before the next ones are sent. */
const MAX_TRYING = 32;
/** Of pods that other replicas would take first. */
const MAX_TRYING_OTHERS = 4;
/** Who lost so often lets the others finish, so that the next try is the last. */
const LOSSES = 2;
const LOST_AGAIN = { firstMs: 150, longestMs: 1_000 };
const GROW_AGAIN_MS = 1_000;

/**
 * Gives pods of pools to instances and takes them back. A claim is one patch that counts only for the pod as it was seen, so of all replicas one
 * wins. Creates that find no free pod wait in the order in which they came.
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
   * A free pod of a pool that fits, which is the instance's from now on; waits for one while there is none. Costs one request when nobody else
   * takes the same pod at the same moment. `onTry` hears of each pod that it tries to get, while the request is on its way. Fails with
   * `deadline_exceeded` (`no pod of pool <id> …`) when none became free in time; when it fails, nothing is claimed.
   */
  async claim(spec: ClaimSpec, signal: AbortSignal, onTry: (pod: V1Pod) => void = () => undefined): Promise<Claim> {
    if (this.#isClosed) throw unavailable('the kubernetes driver is closed');
    const { pools, reason } = choosePools(spec, this.#pools(), this.#options.defaultImage);
    if (pools.length === 0) return { pod: null, pool: null, reason };
    return await this.#wait(spec, pools, signal, onTry);
  }

  /**
   * The instance has ended: the pod goes back to its pool when `isClean`, all of the instance is gone from it, and the pool uses pods again;
   * else it is deleted. One request. Absent = success; so is a pod that is another instance's by now.
   */
  async release(pod: V1Pod, { isClean }: { readonly isClean: boolean }): Promise<void> {
    await this.#changes.release(pod, isClean);
  }

  /**
   * How long a create of this spec may have to wait for a pod, beyond what it takes otherwise: 120 s where a pool that grows would give it one,
   * else 0. No request.
   */
  waitsMs(spec: ClaimSpec): number {
    const { pools } = choosePools(spec, this.#pools(), this.#options.defaultImage);
    return pools.some(grows) ? this.#growWaitMs : 0;
  }

  /** Creates that wait fail. */
  close(): void {
    this.#isClosed = true;
    this.#end();
    for (const waiter of [...this.#waiting]) this.#over(waiter, unavailable('the kubernetes driver is closed'));
  }

  get #growWaitMs(): number {
    return this.#options.growWaitMs ?? GROW_WAIT_MS;
  }

  /** Those that keep pods now. */
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

  /** One claim under way is let go of by the try itself when it ends. */
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

  /** Once for all changes of one turn. */
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
        const pod = this.#free.take(pool.id, this.#trying < MAX_TRYING_OTHERS);
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
    // What was taken by another is not looked at again before the watch has told of it.
    this.#free.settle(pod, { isLost: !outcome.isOurs && outcome.error === undefined });
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
    // Its create was given up meanwhile; nothing of it has been in the pod.
    this.#changes.release(pod, true).catch(() => undefined);
  }

  /** Each create that waits makes at most one pool larger, by one pod, which whoever is first gets. */
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
      // Those that came meanwhile.
      if (by > 0) this.#serveSoon();
    } catch {
      // The cluster is away; creates that wait are still there when it answers again.
      await pause(GROW_AGAIN_MS);
      this.#serveSoon();
    }
  }
}
