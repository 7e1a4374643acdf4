import { POOL_STATUS, type Pool, readPool } from '../../src/core/pool.ts';
import { decide, type PoolAction } from '../../src/pools/policy.ts';
import type { PoolPod, PoolSet, PoolView } from '../../src/sandbox/pools.ts';
import { Random } from '../parts/random.ts';

interface ModelPod extends PoolPod {
  readonly cost: number;
  /** Index in the history from which the pod was ready. */
  readonly readyAt: number;
}

/** State of the cluster at one moment. Immutable. */
interface Moment {
  readonly set: (PoolSet & { readonly generation: number; readonly observed: number }) | null;
  readonly pods: ReadonlyMap<string, ModelPod>;
}

const SIZE = 4;
const MAX = 8;

/**
 * Model of a pool with its claimers, the service's controller and the cluster's ReplicaSet controller. The
 * ReplicaSet controller sees changes late and chooses the pods to end as the real one does. Each step lets
 * one of them do one thing, in any order.
 */
export class PoolModel {
  readonly #random: Random;
  readonly #history: Moment[] = [{ set: null, pods: new Map() }];
  readonly #ended: string[] = [];
  #spec: Pool['spec'];
  #status: Pool['status'] = POOL_STATUS.creating;
  /** Index in the history up to which the ReplicaSet controller has seen changes. */
  #cached = 0;
  /** Index that the ReplicaSet controller must have seen before it acts again: the last change of its own. */
  #expected = 0;
  /** Index in the history up to which the service's controller has seen changes. */
  #seen = 0;
  #made = 0;
  #nowMs = 1_000_000;

  constructor(seed: number, reuse: boolean) {
    this.#random = new Random(seed);
    const resources = { requests: { cpu: '1m', memory: '1Mi' }, limits: { cpu: '1m', memory: '1Mi' } };
    const read = readPool({ id: 'p', size: SIZE, max_size: MAX, reuse, resources, idle_recycle_time: { scaled: 1 } });
    if (!read.ok) throw new Error(read.problems.join());
    this.#spec = read.value;
  }

  /** Returns the claimed pods that ended. */
  get ended(): readonly string[] {
    return this.#ended;
  }

  get pods(): readonly ModelPod[] {
    return [...this.#now.pods.values()];
  }

  get replicas(): number {
    return this.#now.set?.replicas ?? 0;
  }

  step(): void {
    this.#nowMs += this.#random.below(400);
    const acts = [
      () => this.#controller(),
      () => this.#controller(),
      () => this.#replicaSets(),
      () => this.#replicaSets(),
      () => this.#kubelet(),
      () => this.#claim(),
      () => this.#claim(),
      () => this.#release(),
      () => this.#grow(),
      () => this.#resize(),
    ];
    acts[this.#random.below(acts.length)]?.();
  }

  /** Stops all requests and lets every component see every change. */
  settle(): void {
    for (let round = 0; round < 200; round++) {
      this.#nowMs += 500;
      this.#cached = this.#seen = this.#history.length - 1;
      this.#controller();
      this.#cached = this.#history.length - 1;
      this.#replicaSets();
      this.#kubelet(true);
    }
  }

  get wanted(): number {
    const held = this.pods.filter(pod => pod.isMember && pod.instanceId !== null).length;
    return Math.max(this.#spec.size, held);
  }

  delete(): void {
    this.#status = POOL_STATUS.deleting;
  }

  get #now(): Moment {
    return this.#history.at(-1) as Moment;
  }

  #change(change: Partial<Moment>): void {
    this.#history.push({ ...this.#now, ...change });
  }

  #put(pod: ModelPod): void {
    this.#change({ pods: new Map(this.#now.pods).set(pod.name, { ...pod, version: String(this.#history.length) }) });
  }

  #end(name: string): void {
    const pods = new Map(this.#now.pods);
    if (pods.get(name)?.instanceId != null) this.#ended.push(name);
    pods.delete(name);
    this.#change({ pods });
  }

  /**
   * Runs the service's controller once. It has one watch for sets and one for pods, and the watch for pods is
   * never behind.
   */
  #controller(): void {
    this.#seen = this.#later(this.#seen);
    const { set } = this.#history[this.#seen] as Moment;
    const { pods } = this.#history[this.#later(this.#seen)] as Moment;
    const view: PoolView = { set, pods: [...pods.values()] };
    const pool = { spec: this.#spec, status: this.#status, msg: '', readyCount: 0 };
    const plan = decide({
      pool,
      view,
      nowMs: this.#nowMs,
      refusal: null,
      problem: null,
      mayMake: true,
      mayRepairAtMs: 0,
    });
    for (const action of plan.actions) this.#do(action);
    // The controller knows its own changes immediately.
    if (plan.actions.length > 0) this.#seen = this.#history.length - 1;
  }

  #do(action: PoolAction): void {
    const { set, pods } = this.#now;
    switch (action.do) {
      case 'apply': {
        const seen = set?.seen ?? { isCurrent: false, pods: 0, ready: 0, inService: 0 };
        const made = { isAutoscaled: false, problem: null, isEnding: false, observed: -1, generation: 0 };
        const replicas = set?.replicas ?? action.replicas;
        this.#change({ set: { ...made, ...set, seen, replicas, spec: this.#spec, isUpToDate: true } });
        return;
      }
      case 'scale':
        if (set?.replicas === action.from) this.#scale(action.to);
        return;
      case 'disband':
        this.#change({ set: null });
        return;
      case 'retire':
        if (pods.get(action.pod.name)?.version === action.pod.version)
          this.#put({ ...(action.pod as ModelPod), isRetired: true, cost: -1_000_000 });
        return;
      case 'remove':
      case 'repair':
        if (pods.get(action.pod.name)?.version === action.pod.version) this.#end(action.pod.name);
        return;
      case 'keepAtLeast':
    }
  }

  #scale(replicas: number): void {
    const { set } = this.#now;
    if (set === null) return;
    const generation = set.generation + 1;
    this.#change({ set: { ...set, replicas, generation, seen: { ...set.seen, isCurrent: false } } });
  }

  /** Runs the ReplicaSet controller once. It ends pods by name, whatever their state is by then. */
  #replicaSets(): void {
    this.#cached = this.#later(this.#cached);
    const { set, pods } = this.#history[this.#cached] as Moment;
    const present = this.#now.set;
    if (set === null || present === null) return;
    const members = [...pods.values()].filter(({ isMember }) => isMember);
    if (this.#cached >= this.#expected) {
      const surplus = members.length - set.replicas;
      for (let missing = -surplus; missing > 0; missing--) this.#make();
      const ranked = [...members].sort((a, b) => Number(a.isReady) - Number(b.isReady) || a.cost - b.cost);
      for (const { name } of ranked.slice(0, Math.max(0, surplus))) this.#end(name);
      if (surplus !== 0) this.#expected = this.#history.length - 1;
    }
    const seen = {
      isCurrent: set.generation >= present.generation,
      pods: members.length,
      ready: members.filter(({ isReady }) => isReady).length,
      inService: members.filter(({ isRetired }) => !isRetired).length,
    };
    this.#change({ set: { ...(this.#now.set as typeof present), seen } });
  }

  #make(): void {
    this.#made += 1;
    const name = `pod-${this.#made}`;
    this.#put({
      ...{ name, uid: name, version: '', isMember: true, isRetired: false, instanceId: null, state: 'pending' },
      ...{ isReady: false, problem: '', isHopeless: false, createdAtMs: this.#nowMs, restsSinceMs: 0 },
      ...{ isUsed: false, isUpToDate: true, cost: 0, readyAt: 0 },
    });
  }

  #kubelet(all = false): void {
    const pending = this.pods.filter(({ state }) => state === 'pending');
    for (const pod of all ? pending : pending.slice(0, 1)) {
      this.#put({ ...pod, state: 'ready', isReady: true, restsSinceMs: this.#nowMs, readyAt: this.#history.length });
    }
  }

  /**
   * Claims a pod for a claimer that also sees changes late. The claim succeeds only if the pod is unchanged
   * since. The ReplicaSet controller has seen that the pod is ready: a pod takes a second to start, and the
   * claimer learns from the same change.
   */
  #claim(): void {
    const { pods } = this.#history[this.#later(Math.max(0, this.#history.length - 10))] as Moment;
    const free = [...pods.values()].filter(
      pod => pod.isMember && !pod.isRetired && pod.instanceId === null && pod.isReady && pod.readyAt <= this.#cached,
    );
    if (free.length === 0) return;
    const pod = free[this.#random.below(free.length)] as ModelPod;
    if (this.#now.pods.get(pod.name)?.version !== pod.version) return;
    this.#put({ ...pod, instanceId: `i-${pod.name}`, cost: 1_000_000, isMember: this.#spec.reuse });
  }

  #release(): void {
    const held = this.pods.filter(({ instanceId }) => instanceId !== null);
    if (held.length === 0) return;
    const pod = held[this.#random.below(held.length)] as ModelPod;
    if (pod.isMember && this.#now.set !== null && this.#random.below(4) > 0) {
      this.#put({ ...pod, instanceId: null, cost: 0, isUsed: true, restsSinceMs: this.#nowMs });
      return;
    }
    const pods = new Map(this.#now.pods);
    pods.delete(pod.name);
    this.#change({ pods });
  }

  #grow(): void {
    const { set } = this.#now;
    if (set !== null && set.replicas < this.#spec.max_size) this.#scale(set.replicas + 1);
  }

  #resize(): void {
    if (this.#random.below(4) > 0) return;
    const size = this.#random.below(SIZE + 1);
    this.#spec = { ...this.#spec, size, max_size: Math.max(size + 1, this.#random.below(MAX + 1)) };
  }

  #later(from: number): number {
    return from + this.#random.below(this.#history.length - from);
  }
}
