import type { V1Pod, V1ReplicaSet } from '@kubernetes/client-node';
import { type Cluster, statusOf } from './cluster.ts';
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
  readonly cluster: Pick<Cluster, 'request' | 'namespace'>;
  readonly pods: Watched<V1Pod>;
  readonly replicaSets: Watched<V1ReplicaSet>;
  readonly installationId: string;
  readonly nodeId: string;
}

export type Outcome =
  | { readonly isOurs: true; readonly pod: V1Pod }
  /** Somebody else's, or gone; `error`: it cannot be told, or there is no use in another one. */
  | { readonly isOurs: false; readonly error?: Error };

const NOT_FOUND = 404;
const CONFLICT = 409;
const INVALID = 422;
const END_SECONDS = 1;

/** The two changes of a pod of a pool: it becomes an instance's, and is given back. One request each. */
export class PodChanges {
  readonly #options: PodChangesOptions;

  constructor(options: PodChangesOptions) {
    this.#options = options;
  }

  /**
   * The pod as it was seen, and no other, becomes the instance's. One that is to be used again stays in the selector, with a cost that ends all others
   * first; another leaves it, and is replaced at once.
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
      // Somebody else was faster; or a patch that was made lost its answer with its connection, and was sent once more.
      if (status === CONFLICT) {
        const ours = await this.#findOurs(name, instanceId).catch(() => null);
        return ours === null ? { isOurs: false } : { isOurs: true, pod: ours };
      }
      // Refused for good; otherwise the answer may have been lost behind a patch that was made.
      if (status !== undefined && status < 500) return { isOurs: false, error: error as Error };
      const ours = await this.#findOurs(name, instanceId);
      return ours === null ? { isOurs: false, error: error as Error } : { isOurs: true, pod: ours };
    }
  }

  async release(pod: V1Pod, isClean: boolean): Promise<void> {
    const name = pod.metadata?.name ?? '';
    const instanceId = pod.metadata?.labels?.[LABEL_INSTANCE];
    const now = this.#options.pods.get(name) ?? pod;
    // Given back before, and another's by now.
    if (instanceId === undefined || now.metadata?.labels?.[LABEL_INSTANCE] !== instanceId) return;
    if (isClean && this.#isWanted(now)) await this.#giveBack(now, instanceId);
    else await this.#delete(now);
  }

  /** The pod, if a patch whose answer is not known has made it the instance's. */
  async #findOurs(name: string, instanceId: string): Promise<V1Pod | null> {
    const path = this.#path(name);
    const now = await unless([NOT_FOUND], () => this.#request<V1Pod>(`show the pod ${name}`, { path }));
    if (now?.metadata?.labels?.[LABEL_INSTANCE] !== instanceId) return null;
    this.#options.pods.learn(now);
    return now;
  }

  /** It runs and counts for its pool, which uses pods again. */
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

  async #giveBack(pod: V1Pod, instanceId: string): Promise<void> {
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

  #request<T>(what: string, asked: Parameters<Cluster['request']>[1]): Promise<T> {
    return this.#options.cluster.request<T>(what, asked);
  }

  #path(name: string): string {
    return `/api/v1/namespaces/${this.#options.cluster.namespace}/pods/${name}`;
  }
}

/** A name as a part of a JSON pointer. */
function pointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}
