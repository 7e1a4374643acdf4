import { expect, test } from 'vitest';
import { readPool } from '../../core/pool.ts';
import { replicaSetOf } from './replica-set.ts';

const requests = { cpu: '100m', memory: '64Mi' };
const limits = { cpu: '200m', memory: '128Mi' };
const tolerations = [{ key: 'sandboxes', operator: 'Exists', effect: 'NoSchedule' }];
const topologySpreadConstraints = [{ maxSkew: 1, topologyKey: 'zone', whenUnsatisfiable: 'DoNotSchedule' }];
const term = { matchExpressions: [{ key: 'disk', operator: 'In', values: ['ssd'] }] };
const nodeAffinity = { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [term] } };
const volumes = [
  { name: 'models', persistentVolumeClaim: { claimName: 'models', readOnly: true } },
  { name: 'scratch', emptyDir: {} },
];
const mounts = [
  { name: 'models', mountPath: '/models', readOnly: true },
  { name: 'scratch', mountPath: '/scratch' },
];

test('replicaSetOf applies all settings of a pool to its pods', () => {
  const read = readPool({
    ...{ id: 'full', size: 3, image: 'theirs:1', init_image: 'ours:2', labels: { tier: 'gold' } },
    ...{ environment: { WORD: 'x' }, resources: { requests, limits } },
    ...{ volumes: JSON.stringify(volumes), volume_mounts: JSON.stringify(mounts) },
    ...{ node_selector: { 'kubernetes.io/os': 'linux' }, affinities: JSON.stringify({ nodeAffinity }) },
    ...{ tolerations: JSON.stringify(tolerations), runtime_class_name: 'gvisor' },
    topology_spread_constraints: JSON.stringify(topologySpreadConstraints),
  });
  if (!read.ok) throw new Error(read.problems.join());
  const { spec } = replicaSetOf(read.value, 3, {
    installationId: 'abcdefgh-1',
    secretName: 'pods',
    defaultImage: 'ours:1',
  });
  expect(spec.replicas).toBe(3);
  expect(spec.template.metadata.labels).toMatchObject({ tier: 'gold', ...spec.selector.matchLabels });
  const pod = spec.template.spec;
  expect(pod).toMatchObject({
    ...{ nodeSelector: { 'kubernetes.io/os': 'linux' }, runtimeClassName: 'gvisor', tolerations },
    ...{ topologySpreadConstraints, affinity: { nodeAffinity } },
  });
  // In addition to the affinity of the pool, the pods keep away from pods of others.
  expect(pod.affinity?.podAntiAffinity?.preferredDuringSchedulingIgnoredDuringExecution).toHaveLength(1);
  expect(pod.volumes).toEqual(expect.arrayContaining(volumes));
  expect(pod.initContainers?.map(({ image }) => image)).toEqual(['ours:2', 'ours:1']);
  expect(pod.containers).toEqual([
    expect.objectContaining({
      ...{ image: 'theirs:1', env: [{ name: 'WORD', value: 'x' }], resources: { requests, limits } },
      volumeMounts: expect.arrayContaining(mounts),
    }),
  ]);
});
