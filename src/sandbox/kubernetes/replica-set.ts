import { createHash } from 'node:crypto';
import type {
  V1Affinity,
  V1Toleration,
  V1TopologySpreadConstraint,
  V1Volume,
  V1VolumeMount,
  V2HorizontalPodAutoscalerSpec,
} from '@kubernetes/client-node';
import type { PoolSpec } from '../../core/pool.ts';
import {
  ANNOTATION_SPEC,
  ANNOTATION_TEMPLATE,
  LABEL_INSTALLATION,
  LABEL_MEMBER,
  LABEL_POOL,
  LABEL_RETIRED,
  replicaSetName,
} from './labels.ts';
import { type PodTemplate, podTemplate } from './pod-template.ts';
import { imageOf, listOf } from './pool-choice.ts';

export interface PoolTemplateOptions {
  readonly installationId: string;
  readonly secretName: string;
  /** Image of the manager, and of pools that name none. */
  readonly defaultImage: string;
}

/** Creates the template of a pool's pods. `replicaSetOf` adds the labels and annotations of pools. */
export type MakeTemplate = (spec: PoolSpec, options: PoolTemplateOptions) => PodTemplate;

/** Body of the request to the API server. */
export interface ReplicaSetBody {
  readonly apiVersion: 'apps/v1';
  readonly kind: 'ReplicaSet';
  readonly metadata: {
    readonly name: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations: Readonly<Record<string, string>>;
  };
  readonly spec: {
    readonly replicas: number;
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly template: PodTemplate;
  };
}

/**
 * Returns the ReplicaSet of a pool. A Deployment is not used, because its rollout would end claimed pods. The
 * labels of the template depend only on fields of a pool that never change. A retired pod no longer has all
 * of them. So the controller's `fullyLabeledReplicas` shows how many retired pods it has seen.
 */
export function replicaSetOf(
  spec: PoolSpec,
  replicas: number,
  options: PoolTemplateOptions,
  make: MakeTemplate = templateOf,
): ReplicaSetBody {
  const { installationId } = options;
  const selector = { [LABEL_INSTALLATION]: installationId, [LABEL_POOL]: spec.id, [LABEL_MEMBER]: 'true' };
  const made = make(spec, options);
  const labels = { ...made.metadata.labels, ...spec.labels, ...selector, [LABEL_RETIRED]: 'false' };
  const mark = createHash('sha256')
    .update(JSON.stringify([labels, made.spec]))
    .digest('hex')
    .slice(0, 16);
  return {
    apiVersion: 'apps/v1',
    kind: 'ReplicaSet',
    metadata: {
      name: replicaSetName(installationId, spec.id),
      labels: { [LABEL_INSTALLATION]: installationId, [LABEL_POOL]: spec.id },
      annotations: { [ANNOTATION_SPEC]: JSON.stringify(spec), [ANNOTATION_TEMPLATE]: mark },
    },
    spec: {
      replicas,
      selector: { matchLabels: selector },
      template: {
        metadata: { labels, annotations: { ...made.metadata.annotations, [ANNOTATION_TEMPLATE]: mark } },
        spec: made.spec,
      },
    },
  };
}

/**
 * Returns the autoscaler of a pool, or null when it has none. The pool replaces any target that its spec
 * names.
 */
export function autoscalerOf(spec: PoolSpec, installationId: string, keepAtLeast: number) {
  if (spec.horizontal_pod_autoscaler_spec === '') return null;
  const asked = JSON.parse(spec.horizontal_pod_autoscaler_spec) as V2HorizontalPodAutoscalerSpec;
  const name = replicaSetName(installationId, spec.id);
  const least = Math.min(Math.max(asked.minReplicas ?? 1, keepAtLeast), asked.maxReplicas);
  return {
    apiVersion: 'autoscaling/v2',
    kind: 'HorizontalPodAutoscaler',
    metadata: { name, labels: { [LABEL_INSTALLATION]: installationId, [LABEL_POOL]: spec.id } },
    spec: {
      ...asked,
      ...(least === (asked.minReplicas ?? 1) ? {} : { minReplicas: least }),
      scaleTargetRef: { apiVersion: 'apps/v1', kind: 'ReplicaSet', name },
    },
  };
}

/**
 * Returns an anti-affinity to the pods of other pools. `preferred`: pods of two pools may share a node if
 * there is no other.
 */
function awayFromOtherPools(installationId: string, poolId: string): NonNullable<V1Affinity['podAntiAffinity']> {
  const others = [
    { key: LABEL_INSTALLATION, operator: 'In', values: [installationId] },
    { key: LABEL_POOL, operator: 'Exists' },
    { key: LABEL_POOL, operator: 'NotIn', values: [poolId] },
  ];
  return {
    preferredDuringSchedulingIgnoredDuringExecution: [
      {
        weight: 100,
        podAffinityTerm: { labelSelector: { matchExpressions: others }, topologyKey: 'kubernetes.io/hostname' },
      },
    ],
  };
}

/** Returns JSON of the anti-affinity that is added to a pool, `''` when there is none. */
export function addedAntiAffinities(spec: PoolSpec, installationId: string): string {
  const asked = spec.affinities === '' ? {} : (JSON.parse(spec.affinities) as V1Affinity);
  const { podAntiAffinity } = affinityOf(spec, installationId);
  return asked.podAntiAffinity != null || podAntiAffinity == null ? '' : JSON.stringify(podAntiAffinity);
}

/**
 * Returns the affinity of a pool. If its `affinities` mention pods, they replace the default entirely.
 * Required terms would also apply to the pods of other pools. With fewer nodes than pools those would fit
 * nowhere, so the default only prefers.
 */
function affinityOf({ id, affinities }: PoolSpec, installationId: string): V1Affinity {
  const asked = affinities === '' ? {} : (JSON.parse(affinities) as V1Affinity);
  const saysOtherwise = asked.podAntiAffinity != null || asked.podAffinity != null;
  return saysOtherwise ? asked : { ...asked, podAntiAffinity: awayFromOtherPools(installationId, id) };
}

export function templateOf(
  spec: PoolSpec,
  { installationId, secretName, defaultImage }: PoolTemplateOptions,
): PodTemplate {
  return podTemplate({
    installationId,
    secretName,
    labels: {},
    image: imageOf(spec, defaultImage),
    ourImage: defaultImage,
    initImage: spec.init_image,
    mode: 'ours',
    resources: spec.resources,
    restartPolicy: 'Always',
    env: Object.entries(spec.environment ?? {}).map(([name, value]) => ({ name, value })),
    volumes: listOf<V1Volume>(spec.volumes),
    volumeMounts: listOf<V1VolumeMount>(spec.volume_mounts),
    nodeSelector: spec.node_selector,
    runtimeClassName: spec.runtime_class_name,
    tolerations: listOf<V1Toleration>(spec.tolerations),
    affinity: affinityOf(spec, installationId),
    topologySpreadConstraints: listOf<V1TopologySpreadConstraint>(spec.topology_spread_constraints),
  });
}
