import type { V1Pod, V1ReplicaSet } from '@kubernetes/client-node';
import { type KubernetesApi, statusOf } from './cluster.ts';
import {
  ANNOTATION_CLAIMED_AT,
  ANNOTATION_DELETION_COST,
  ANNOTATION_RETURNED_AT,
  CLAIMED_DELETION_COST,
  LABEL_INSTANCE,
  LABEL_MEMBER,
  LABEL_NODE,
  LABEL_RETIRED,
  replicaSetName,
} from './labels.ts';
import { poolIdOf, specOf, unless } from './pool-backend.ts';
import { stateOf } from './pool-pods.ts';
import type { Watched } from './watched.ts';

export interface PodChangesOptions {
  readonly cluster: Pick<KubernetesApi, 'request' | 'namespace'>;
  readonly pods: Watched<V1Pod>;
  readonly replicaSets: Watched<V1ReplicaSet>;
  readonly installationId: string;
  readonly nodeId: string;
}

export type Outcome =
  | { readonly isOurs: true; readonly pod: V1Pod }
  /**
   * The pod has another owner or was removed. `error`: the result is unknown, or another pod would fail too.
   */
  | { readonly isOurs: false; readonly error?: Error };

const NOT_FOUND = 404;
const CONFLICT = 409;
const INVALID = 422;
const END_SECONDS = 1;

/** Claims and releases a pod of a pool, with one request each. */
export class PodChanges {
  readonly #options: PodChangesOptions;

  constructor(options: PodChangesOptions) {
    this.#options = options;
  }

  /**
   * Claims the pod for the instance, if it has not changed since it was seen. A reusable pod stays in the
   * selector, with a deletion cost that protects it. Any other pod leaves the selector, so that its
   * ReplicaSet replaces it at once.
   */
  async claim(pod: V1Pod, instanceId: string, reuse: boolean): Promise<Outcome> {
    const { metadata } = pod;
    const body = {
      metadata: {
        uid: metadata?.uid,
        resourceVersion: metadata?.resourceVersion,
        labels: {
          [LABEL_INSTANCE]: instanceId,
          [LABEL_NODE]: this.#options.nodeId,
          ...(!reuse && { [LABEL_MEMBER]: null }),
        },
        annotations: {
          [ANNOTATION_CLAIMED_AT]: new Date().toISOString(),
          [ANNOTATION_DELETION_COST]: CLAIMED_DELETION_COST,
        },
      },
    };
    const name = metadata?.name ?? '';
    try {
      const what = `give the pod ${name} to ${instanceId}`;
      const now = await this.#request<V1Pod>(what, { method: 'PATCH', patch: 'merge', path: this.#path(name), body });
      this.#options.pods.learn(now);
      return { isOurs: true, pod: now };
    } catch (error) {
      const status = statusOf(error);
      if (status === NOT_FOUND) return { isOurs: false };
      // Another replica was faster. Or the patch succeeded, its answer was lost with the connection, and it
      // was sent again.
      if (status === CONFLICT) {
        const ours = await this.#findOurs(name, instanceId).catch(() => null);
        return ours === null ? { isOurs: false } : { isOurs: true, pod: ours };
      }
      // Below 500 the refusal is final. Otherwise the patch may have succeeded without its answer.
      if (status !== undefined && status < 500) return { isOurs: false, error: error as Error };
      const ours = await this.#findOurs(name, instanceId);
      return ours === null ? { isOurs: false, error: error as Error } : { isOurs: true, pod: ours };
    }
  }

  async release(pod: V1Pod, isClean: boolean): Promise<void> {
    const name = pod.metadata?.name ?? '';
    const instanceId = pod.metadata?.labels?.[LABEL_INSTANCE];
    const now = this.#options.pods.get(name) ?? pod;
    // The pod was released before and may belong to another instance.
    if (instanceId === undefined || now.metadata?.labels?.[LABEL_INSTANCE] !== instanceId) return;
    if (isClean && this.#isWanted(now)) await this.#returnToPool(now, instanceId);
    else await this.#delete(now);
  }

  /** Returns the pod if a patch with an unknown result has claimed it for the instance; else null. */
  async #findOurs(name: string, instanceId: string): Promise<V1Pod | null> {
    const path = this.#path(name);
    const now = await unless([NOT_FOUND], () => this.#request<V1Pod>(`show the pod ${name}`, { path }));
    if (now?.metadata?.labels?.[LABEL_INSTANCE] !== instanceId) return null;
    this.#options.pods.learn(now);
    return now;
  }

  /** Returns true when the pod runs and belongs to a pool that reuses pods. */
  #isWanted(pod: V1Pod): boolean {
    const labels = pod.metadata?.labels ?? {};
    const set = this.#options.replicaSets.get(replicaSetName(this.#options.installationId, poolIdOf(pod) ?? ''));
    return (
      stateOf(pod) === 'ready' &&
      labels[LABEL_MEMBER] === 'true' &&
      labels[LABEL_RETIRED] !== 'true' &&
      set !== undefined &&
      set.metadata?.deletionTimestamp === undefined &&
      specOf(set)?.reuse === true
    );
  }

  async #returnToPool(pod: V1Pod, instanceId: string): Promise<void> {
    const name = pod.metadata?.name ?? '';
    const body = [
      { op: 'test', path: '/metadata/uid', value: pod.metadata?.uid },
      { op: 'test', path: `/metadata/labels/${pointer(LABEL_INSTANCE)}`, value: instanceId },
      { op: 'remove', path: `/metadata/labels/${pointer(LABEL_INSTANCE)}` },
      { op: 'remove', path: `/metadata/labels/${pointer(LABEL_NODE)}` },
      { op: 'remove', path: `/metadata/annotations/${pointer(ANNOTATION_DELETION_COST)}` },
      { op: 'remove', path: `/metadata/annotations/${pointer(ANNOTATION_CLAIMED_AT)}` },
      {
        op: 'add',
        path: `/metadata/annotations/${pointer(ANNOTATION_RETURNED_AT)}`,
        value: new Date().toISOString(),
      },
    ];
    const asked = { method: 'PATCH', patch: 'json', path: this.#path(name), body } as const;
    const now = await unless([NOT_FOUND, CONFLICT, INVALID], () =>
      this.#request<V1Pod>(`take the pod ${name} back into its pool`, asked),
    );
    if (now !== undefined) this.#options.pods.learn(now);
  }

  async #delete(pod: V1Pod): Promise<void> {
    const name = pod.metadata?.name ?? '';
    const body = { gracePeriodSeconds: END_SECONDS, preconditions: { uid: pod.metadata?.uid } };
    const asked = { method: 'DELETE', path: this.#path(name), body } as const;
    await unless([NOT_FOUND, CONFLICT], () => this.#request(`remove the pod ${name}`, asked));
  }

  #request<T>(what: string, asked: Parameters<KubernetesApi['request']>[1]): Promise<T> {
    return this.#options.cluster.request<T>(what, asked);
  }

  #path(name: string): string {
    return `/api/v1/namespaces/${this.#options.cluster.namespace}/pods/${name}`;
  }
}

/** Escapes a name for a JSON pointer. */
function pointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}
