import type { V1Pod, V1ReplicaSet, V1Volume, V1VolumeMount } from '@kubernetes/client-node';
import type { HostPathPolicy } from '../../core/host-path.ts';
import type { PoolSpec } from '../../core/pool.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { PoolBackend, PoolPod, PoolSet, PoolView } from '../pools.ts';
import { type KubernetesApi, statusOf } from './cluster.ts';
import {
  ANNOTATION_DELETION_COST,
  ANNOTATION_SPEC,
  ANNOTATION_TEMPLATE,
  LABEL_INSTALLATION,
  LABEL_POOL,
  LABEL_RETIRED,
  RETIRED_DELETION_COST,
  replicaSetName,
} from './labels.ts';
import { refusedVolumes } from './pod-volumes.ts';
import { listOf } from './pool-choice.ts';
import { poolPodOf } from './pool-pods.ts';
import { addedAntiAffinities, autoscalerOf, type MakeTemplate, replicaSetOf } from './replica-set.ts';
import type { Watched } from './watched.ts';

export interface PoolBackendOptions {
  readonly cluster: Pick<KubernetesApi, 'request' | 'namespace'>;
  /** All pods and all ReplicaSets of the installation. */
  readonly pods: Watched<V1Pod>;
  readonly replicaSets: Watched<V1ReplicaSet>;
  readonly installationId: string;
  readonly secretName: string;
  readonly nodeId: string;
  readonly defaultImage: string;
  readonly mountPolicy: HostPathPolicy;
  readonly makeTemplate?: MakeTemplate;
  /** Creates objects that pods need before they can start. */
  readonly prepare?: () => Promise<unknown>;
  readonly logger: Logger;
}

const NOT_FOUND = 404;
const CONFLICT = 409;
const INVALID = 422;
/** Grace period for a pool's pod; no instance runs in it any more. */
const END_SECONDS = 1;

/** Manages the pools of an installation as ReplicaSets. */
export class KubernetesPools implements PoolBackend {
  readonly #options: PoolBackendOptions;
  /** Pool id → names of its pods. */
  readonly #pods = new Map<string, Set<string>>();
  readonly #ids = new Set<string>();
  readonly #listeners = new Set<(poolId: string) => void>();

  constructor(options: PoolBackendOptions) {
    this.#options = options;
    const { pods, replicaSets } = options;
    // The driver may have listed objects before this subscription.
    for (const pod of pods.all()) this.#podChanged(pod.metadata?.name ?? '', pod, undefined);
    for (const set of replicaSets.all()) this.#changed(poolIdOf(set));
    pods.subscribe((name, now, before) => this.#podChanged(name, now, before));
    replicaSets.subscribe((_name, now, before) => this.#changed(poolIdOf(now ?? before)));
  }

  async open(): Promise<void> {
    const { pods, replicaSets } = this.#options;
    await Promise.all([pods.open(), replicaSets.open()]);
  }

  get isCurrent(): boolean {
    const { pods, replicaSets } = this.#options;
    return pods.problem === null && replicaSets.problem === null;
  }

  ids(): ReadonlySet<string> {
    return this.#ids;
  }

  view(poolId: string): PoolView {
    const { pods, replicaSets } = this.#options;
    const set = replicaSets.get(this.#name(poolId));
    const template = set?.metadata?.annotations?.[ANNOTATION_TEMPLATE] ?? null;
    const names = [...(this.#pods.get(poolId) ?? [])];
    return {
      set: set === undefined ? null : this.#setOf(set),
      pods: names.flatMap(name => {
        const pod = pods.get(name);
        return pod === undefined ? [] : [poolPodOf(pod, template)];
      }),
    };
  }

  onChange(listener: (poolId: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  refusal(spec: PoolSpec): string | null {
    const { volumes, volume_mounts: mounts } = spec;
    return refusedVolumes(listOf<V1Volume>(volumes), listOf<V1VolumeMount>(mounts), this.#options.mountPolicy);
  }

  antiAffinities(spec: PoolSpec): string {
    return addedAntiAffinities(spec, this.#options.installationId);
  }

  async apply(spec: PoolSpec, replicas: number): Promise<void> {
    const { replicaSets } = this.#options;
    const what = `make the pool ${spec.id}`;
    const body = this.#bodyOf(spec, replicas);
    await this.#options.prepare?.();
    await this.#applyAutoscaler(spec, 0);
    if (replicaSets.get(body.metadata.name) === undefined) {
      try {
        const path = this.#setPath();
        replicaSets.learn(await this.#request<V1ReplicaSet>(what, { method: 'POST', path, body }));
        return;
      } catch (error) {
        // Another replica of the service created it, and this replica has not seen it yet.
        if (statusOf(error) !== CONFLICT) throw error;
      }
    }
    const patch = [
      { op: 'replace', path: '/metadata/annotations', value: body.metadata.annotations },
      { op: 'replace', path: '/spec/template', value: body.spec.template },
    ];
    const asked = { method: 'PATCH', patch: 'json', path: this.#setPath(spec.id), body: patch } as const;
    replicaSets.learn(await this.#request<V1ReplicaSet>(what, asked));
  }

  async scale(poolId: string, from: number, to: number): Promise<boolean> {
    const body = [
      { op: 'test', path: '/spec/replicas', value: from },
      { op: 'replace', path: '/spec/replicas', value: to },
    ];
    const asked = { method: 'PATCH', patch: 'json', path: this.#setPath(poolId), body } as const;
    const set = await unless([NOT_FOUND, CONFLICT, INVALID], () =>
      this.#request<V1ReplicaSet>(`change the size of the pool ${poolId}`, asked),
    );
    if (set !== undefined) this.#options.replicaSets.learn(set);
    return set !== undefined;
  }

  async keepAtLeast(poolId: string, replicas: number): Promise<void> {
    const set = this.#options.replicaSets.get(this.#name(poolId));
    const spec = set === undefined ? null : specOf(set);
    if (spec !== null) await this.#applyAutoscaler(spec, replicas);
  }

  async retire(pod: PoolPod): Promise<boolean> {
    const body = {
      metadata: {
        uid: pod.uid,
        resourceVersion: pod.version,
        labels: { [LABEL_RETIRED]: 'true' },
        annotations: { [ANNOTATION_DELETION_COST]: RETIRED_DELETION_COST },
      },
    };
    const asked = { method: 'PATCH', patch: 'merge', path: this.#podPath(pod.name), body } as const;
    const now = await unless([NOT_FOUND, CONFLICT], () => this.#request<V1Pod>(`retire the pod ${pod.name}`, asked));
    if (now !== undefined) this.#options.pods.learn(now);
    return now !== undefined;
  }

  async remove(pod: PoolPod): Promise<boolean> {
    const body = {
      gracePeriodSeconds: pod.state === 'failed' ? 0 : END_SECONDS,
      preconditions: { uid: pod.uid, resourceVersion: pod.version },
    };
    const asked = { method: 'DELETE', path: this.#podPath(pod.name), body } as const;
    const now = await unless([CONFLICT], () =>
      unless([NOT_FOUND], () => this.#request<V1Pod>(`remove the pod ${pod.name}`, asked), {} as V1Pod),
    );
    if (now?.kind === 'Pod') this.#options.pods.learn(now);
    return now !== undefined;
  }

  async disband(poolId: string): Promise<void> {
    const what = `end the pool ${poolId}`;
    const name = this.#name(poolId);
    const autoscaler = { method: 'DELETE', path: `${this.#autoscalers()}/${name}` } as const;
    await unless([NOT_FOUND], () => this.#request(what, autoscaler));
    const body = { propagationPolicy: 'Orphan' };
    await unless([NOT_FOUND], () => this.#request(what, { method: 'DELETE', path: this.#setPath(poolId), body }));
  }

  async warn(poolId: string, reason: string, message: string): Promise<void> {
    const { cluster, nodeId, logger } = this.#options;
    const { namespace } = cluster;
    const name = this.#name(poolId);
    const uid = this.#options.replicaSets.get(name)?.metadata?.uid;
    const now = new Date().toISOString();
    const body = {
      apiVersion: 'v1',
      kind: 'Event',
      metadata: { generateName: `${name}.`, namespace, labels: { [LABEL_POOL]: poolId } },
      involvedObject: { apiVersion: 'apps/v1', kind: 'ReplicaSet', namespace, name, ...(uid && { uid }) },
      type: 'Warning',
      reason,
      message: message.slice(0, 1000),
      source: { component: 'rookery', host: nodeId },
      firstTimestamp: now,
      lastTimestamp: now,
      count: 1,
    };
    try {
      const path = `/api/v1/namespaces/${namespace}/events`;
      await this.#request(`take the warning of the pool ${poolId}`, { method: 'POST', path, body });
    } catch (error) {
      logger.warn({ err: error, pool: poolId, reason }, 'cannot write the warning event of a pool');
    }
  }

  async #applyAutoscaler(spec: PoolSpec, keepAtLeast: number): Promise<void> {
    const what = `autoscale the pool ${spec.id}`;
    const body = autoscalerOf(spec, this.#options.installationId, keepAtLeast);
    const path = `${this.#autoscalers()}/${this.#name(spec.id)}`;
    const had = this.#options.replicaSets.get(this.#name(spec.id));
    if (body === null) {
      const hadOne = had !== undefined && specOf(had)?.horizontal_pod_autoscaler_spec !== '';
      if (hadOne) await unless([NOT_FOUND], () => this.#request(what, { method: 'DELETE', path }));
      return;
    }
    const patch = [{ op: 'replace', path: '/spec', value: body.spec }];
    const asked = { method: 'PATCH', patch: 'json', path, body: patch } as const;
    const made = await unless([NOT_FOUND], () => this.#request<object>(what, asked));
    if (made === undefined) await this.#request(what, { method: 'POST', path: this.#autoscalers(), body });
  }

  #setOf(set: V1ReplicaSet): PoolSet {
    const { metadata, spec, status } = set;
    const made = specOf(set);
    const failure = status?.conditions?.find(({ type, status: is }) => type === 'ReplicaFailure' && is === 'True');
    const annotations = metadata?.annotations ?? {};
    const present = made === null ? null : this.#bodyOf(made, 0).metadata.annotations[ANNOTATION_TEMPLATE];
    return {
      spec: made,
      isUpToDate: present !== null && annotations[ANNOTATION_TEMPLATE] === present,
      replicas: spec?.replicas ?? 1,
      seen: {
        isCurrent: (status?.observedGeneration ?? 0) >= (metadata?.generation ?? 0),
        pods: status?.replicas ?? 0,
        ready: status?.readyReplicas ?? 0,
        inService: status?.fullyLabeledReplicas ?? 0,
      },
      isAutoscaled: made !== null && made.horizontal_pod_autoscaler_spec !== '',
      problem: failure === undefined ? null : `${failure.reason}: ${failure.message}`,
      isEnding: metadata?.deletionTimestamp !== undefined,
    };
  }

  #bodyOf(spec: PoolSpec, replicas: number) {
    return replicaSetOf(spec, replicas, this.#options, this.#options.makeTemplate);
  }

  #podChanged(name: string, now: V1Pod | undefined, before: V1Pod | undefined): void {
    const poolId = poolIdOf(now ?? before);
    if (poolId === undefined) return;
    let names = this.#pods.get(poolId);
    if (now === undefined) {
      names?.delete(name);
      if (names?.size === 0) this.#pods.delete(poolId);
    } else {
      if (names === undefined) {
        names = new Set();
        this.#pods.set(poolId, names);
      }
      names.add(name);
    }
    this.#changed(poolId);
  }

  #changed(poolId: string | undefined): void {
    if (poolId === undefined) return;
    const isThere = this.#pods.has(poolId) || this.#options.replicaSets.get(this.#name(poolId)) !== undefined;
    if (isThere) this.#ids.add(poolId);
    else this.#ids.delete(poolId);
    for (const listener of this.#listeners) listener(poolId);
  }

  #request<T>(what: string, asked: Parameters<KubernetesApi['request']>[1]): Promise<T> {
    return this.#options.cluster.request<T>(what, asked);
  }

  #name(poolId: string): string {
    return replicaSetName(this.#options.installationId, poolId);
  }

  #setPath(poolId?: string): string {
    const all = `/apis/apps/v1/namespaces/${this.#options.cluster.namespace}/replicasets`;
    return poolId === undefined ? all : `${all}/${this.#name(poolId)}`;
  }

  #podPath(name: string): string {
    return `/api/v1/namespaces/${this.#options.cluster.namespace}/pods/${name}`;
  }

  #autoscalers(): string {
    return `/apis/autoscaling/v2/namespaces/${this.#options.cluster.namespace}/horizontalpodautoscalers`;
  }
}

/** Returns the spec from which the ReplicaSet was made; null when it cannot be read. */
export function specOf(set: V1ReplicaSet): PoolSpec | null {
  try {
    return JSON.parse(set.metadata?.annotations?.[ANNOTATION_SPEC] ?? '') as PoolSpec;
  } catch {
    return null;
  }
}

export function poolIdOf(object: V1Pod | V1ReplicaSet | undefined): string | undefined {
  const labels = object?.metadata?.labels;
  return labels?.[LABEL_INSTALLATION] === undefined ? undefined : labels[LABEL_POOL];
}

/** Returns the result of `work`, or `otherwise` when the API server refuses it with one of these statuses. */
export async function unless<T>(
  statuses: readonly number[],
  work: () => Promise<T>,
  otherwise?: T,
): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (!statuses.includes(statusOf(error) ?? 0)) throw error;
    return otherwise;
  }
}
