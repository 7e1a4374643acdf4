import type { V1Pod, V1ReplicaSet } from '@kubernetes/client-node';
import type { Cluster } from './cluster.ts';
import { LABEL_INSTANCE, LABEL_MEMBER, LABEL_POOL, LABEL_RETIRED, replicaSetName } from './labels.ts';
import { specOf, unless } from './pool-backend.ts';
import type { Watched } from './watched.ts';

export interface PoolGrowthOptions {
  readonly cluster: Pick<Cluster, 'request' | 'namespace'>;
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
