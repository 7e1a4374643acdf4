import { createHash } from 'node:crypto';
import type { V1Pod, V1ReplicaSet } from '@kubernetes/client-node';
import type { KubernetesApi } from './cluster.ts';
import { LABEL_INSTANCE, LABEL_MEMBER, LABEL_POOL, LABEL_RETIRED, replicaSetName } from './labels.ts';
import { poolIdOf, specOf, unless } from './pool-backend.ts';
import { holderOf, isFree } from './pool-pods.ts';
import type { Watched } from './watched.ts';

export interface FreePodsOptions {
  readonly pods: Watched<V1Pod>;
  readonly nodeId: string;
}

interface Free {
  /** Returns the pod's rank for a replica. The active replica with the highest rank owns the pod. */
  readonly rank: (nodeId: string) => number;
}

/** Time for which a replica counts as active after a claim of it was seen. */
const PEER_MS = 600_000;

/**
 * Free pods of pools. A hash of pod and replica ranks the replicas for each pod, so that replicas claim
 * different pods. A replica without free pods of its own takes pods for which it ranks next, in the opposite
 * order of their owner.
 */
export class FreePods {
  readonly #options: FreePodsOptions;
  readonly #pools = new Map<string, Map<string, Free>>();
  /** Pods with a pending or lost claim. A lost pod is skipped until the watch reports its change. */
  readonly #taken = new Map<string, 'trying' | 'lost'>();
  readonly #peers = new Map<string, number>();
  readonly #listeners = new Set<() => void>();
  readonly #end: () => void;

  constructor(options: FreePodsOptions) {
    this.#options = options;
    for (const pod of options.pods.all()) this.#changed(pod.metadata?.name ?? '', pod, undefined);
    this.#end = options.pods.subscribe((name, now, before) => this.#changed(name, now, before));
  }

  /** Registers a listener for pods that become free. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Reserves a free pod until `endReservation`; undefined when there is none. `mayBeOthers` also permits pods
   * that another replica owns.
   */
  reserve(poolId: string, mayBeOthers: boolean): V1Pod | undefined {
    const { nodeId, pods } = this.#options;
    const peers = this.#living();
    let best: { readonly name: string; readonly place: number } | undefined;
    for (const [name, free] of this.#pools.get(poolId) ?? []) {
      if (this.#taken.has(name)) continue;
      const own = free.rank(nodeId);
      const ranks = peers.map(free.rank);
      const above = ranks.filter(rank => rank > own).length;
      const place = above === 0 ? own : -above - Math.max(...ranks);
      if (!mayBeOthers && above > 0) continue;
      if (best === undefined || place > best.place) best = { name, place };
    }
    const pod = best === undefined ? undefined : pods.get(best.name);
    if (best === undefined || pod === undefined) return undefined;
    this.#taken.set(best.name, 'trying');
    return pod;
  }

  /** Ends the reservation of `reserve`. A lost pod stays reserved until the watch reports its change. */
  endReservation(pod: V1Pod, { isLost }: { readonly isLost: boolean }): void {
    const name = pod.metadata?.name ?? '';
    const isSeenChanged = this.#options.pods.get(name)?.metadata?.resourceVersion !== pod.metadata?.resourceVersion;
    if (isLost && !isSeenChanged) this.#taken.set(name, 'lost');
    else this.#taken.delete(name);
  }

  close(): void {
    this.#end();
    this.#listeners.clear();
  }

  #changed(name: string, now: V1Pod | undefined, before: V1Pod | undefined): void {
    const poolId = poolIdOf(now ?? before);
    if (poolId === undefined) return;
    // This change shows why a claim was lost. A pending claim keeps its reservation until it ends.
    if (this.#taken.get(name) === 'lost') this.#taken.delete(name);
    const { nodeId } = this.#options;
    const holder = now === undefined ? undefined : holderOf(now);
    if (holder !== undefined && holder !== nodeId) this.#peers.set(holder, Date.now());
    const free = this.#pools.get(poolId);
    if (now === undefined || !isFree(now)) {
      free?.delete(name);
      if (free?.size === 0) this.#pools.delete(poolId);
      return;
    }
    const uid = now.metadata?.uid ?? '';
    if (free === undefined) this.#pools.set(poolId, new Map([[name, { rank: rankOf(uid) }]]));
    else if (!free.has(name)) free.set(name, { rank: rankOf(uid) });
    for (const listener of this.#listeners) listener();
  }

  #living(): string[] {
    const sinceMs = Date.now() - PEER_MS;
    for (const [nodeId, atMs] of this.#peers) if (atMs < sinceMs) this.#peers.delete(nodeId);
    return [...this.#peers.keys()];
  }
}

/** Returns a rank from 0 to 1, the same in every replica. */
function rankOf(uid: string): (nodeId: string) => number {
  const known = new Map<string, number>();
  return nodeId => {
    let rank = known.get(nodeId);
    if (rank === undefined) {
      rank = createHash('sha256').update(`${uid} ${nodeId}`).digest().readUInt32BE() / 2 ** 32;
      known.set(nodeId, rank);
    }
    return rank;
  };
}

export interface PoolGrowthOptions {
  readonly cluster: Pick<KubernetesApi, 'request' | 'namespace'>;
  readonly pods: Watched<V1Pod>;
  readonly replicaSets: Watched<V1ReplicaSet>;
  readonly installationId: string;
}

const NOT_FOUND = 404;
const CONFLICT = 409;
const INVALID = 422;

/** Grows pools for waiting creates, with one request at a time per pool for all its waiters. */
export class PoolGrowth {
  readonly #options: PoolGrowthOptions;
  readonly #growing = new Set<string>();

  constructor(options: PoolGrowthOptions) {
    this.#options = options;
  }

  /** Returns the number of pods by which the pool can still grow. */
  room(poolId: string): number {
    const set = this.#setOf(poolId);
    return set === undefined ? 0 : (specOf(set)?.max_size ?? 0) - (set.spec?.replicas ?? 0);
  }

  /**
   * Grows the pool by the pods that are not already expected, and returns their number. `waiting` creates
   * wait for the pool; `fresh` of them have not made it grow yet. Returns 0 also when another change of its
   * size is under way or came first. Fails when the cluster does not answer.
   */
  async want(poolId: string, waiting: number, fresh: number): Promise<number> {
    const replicas = this.#setOf(poolId)?.spec?.replicas ?? 0;
    const by = Math.min(waiting - this.#coming(poolId, replicas), fresh, this.room(poolId));
    if (by <= 0 || this.#growing.has(poolId)) return 0;
    this.#growing.add(poolId);
    try {
      return (await this.#grow(poolId, replicas, by)) ? by : 0;
    } finally {
      this.#growing.delete(poolId);
    }
  }

  #setOf(poolId: string): V1ReplicaSet | undefined {
    return this.#options.replicaSets.get(replicaSetName(this.#options.installationId, poolId));
  }

  /** Returns the number of existing or expected pods that have no instance. */
  #coming(poolId: string, replicas: number): number {
    let held = 0;
    for (const { metadata } of this.#options.pods.all()) {
      const labels = metadata?.labels ?? {};
      if (labels[LABEL_POOL] !== poolId || labels[LABEL_MEMBER] !== 'true') continue;
      if (metadata?.deletionTimestamp !== undefined) continue;
      if (labels[LABEL_INSTANCE] !== undefined || labels[LABEL_RETIRED] === 'true') held += 1;
    }
    return Math.max(0, replicas - held);
  }

  async #grow(poolId: string, from: number, by: number): Promise<boolean> {
    const { cluster, replicaSets, installationId } = this.#options;
    const name = replicaSetName(installationId, poolId);
    const body = [
      { op: 'test', path: '/spec/replicas', value: from },
      { op: 'replace', path: '/spec/replicas', value: from + by },
    ];
    const path = `/apis/apps/v1/namespaces/${cluster.namespace}/replicasets/${name}`;
    const now = await unless([NOT_FOUND, CONFLICT, INVALID], () =>
      cluster.request<V1ReplicaSet>(`make the pool ${poolId} larger`, { method: 'PATCH', patch: 'json', path, body }),
    );
    if (now !== undefined) replicaSets.learn(now);
    return now !== undefined;
  }
}
