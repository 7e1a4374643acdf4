import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  mayFollow,
  mergePoolUpdate,
  POOL_STATUS,
  type PoolSpec,
  readPool,
  statesBefore,
  statusAfterUpdate,
} from './pool.ts';

const { new: fresh, creating, updateRequested, updating, running, failed, deleting } = POOL_STATUS;

test('statusAfterUpdate keeps a new pool new, and returns null while deleting or with an update pending', () => {
  expect(statusAfterUpdate(fresh)).toBe(fresh);
  for (const status of [creating, updating, running, failed]) expect(statusAfterUpdate(status)).toBe(updateRequested);
  for (const status of [updateRequested, deleting]) expect(statusAfterUpdate(status)).toBeNull();
});

test('a deleting pool changes to no other status', () => {
  expect(Object.values(POOL_STATUS).filter(to => mayFollow(deleting, to))).toEqual([deleting]);
});

test('a pool becomes running after creating, updating or failed', () => {
  expect(statesBefore(running).sort()).toEqual([creating, updating, running, failed].sort());
});

const RESOURCES = { requests: { cpu: '500m', memory: '512Mi' }, limits: { cpu: '1000m', memory: '1Gi' } };
const SMALLEST = { id: 'pool-1', resources: RESOURCES };

const problemsOf = (changes: Record<string, unknown>) => {
  const read = readPool({ ...SMALLEST, ...changes });
  return read.ok ? '' : read.problems.join('; ');
};
const specOf = (changes: Record<string, unknown> = {}): PoolSpec => {
  const read = readPool({ ...SMALLEST, ...changes });
  if (!read.ok) throw new Error(read.problems.join('; '));
  return read.value;
};

test('a pool needs only id and resources, and every other field has its default', () => {
  expect(specOf()).toEqual({
    id: 'pool-1',
    group: 'default',
    reuse: false,
    size: 0,
    max_size: 0,
    image: '',
    init_image: '',
    labels: null,
    environment: null,
    volumes: '',
    volume_mounts: '',
    resources: RESOURCES,
    affinities: '',
    node_selector: null,
    runtime_class_name: '',
    tolerations: '',
    horizontal_pod_autoscaler_spec: '',
    topology_spread_constraints: '',
    pod_pending_duration_threshold: 120,
    idle_recycle_time: { reserved: 0, scaled: 0 },
    scalable: false,
  });
});

test('max_size equals size when it is 0 or absent, and a larger max_size makes the pool scalable', () => {
  expect(specOf({ size: 3 })).toMatchObject({ max_size: 3, scalable: false });
  expect(specOf({ size: 3, max_size: 0 })).toMatchObject({ max_size: 3, scalable: false });
  expect(specOf({ size: 3, max_size: 5 })).toMatchObject({ max_size: 5, scalable: true });
});

test('a pending threshold of 0 means 120 seconds', () => {
  expect(specOf({ pod_pending_duration_threshold: 0 }).pod_pending_duration_threshold).toBe(120);
  expect(specOf({ pod_pending_duration_threshold: 60 }).pod_pending_duration_threshold).toBe(60);
});

test('both names of the recycle label are checked', () => {
  for (const label of ['svc-idle-to-recycle', 'yr-idle-to-recycle']) {
    for (const value of ['0', '300', '2147483647', 'unlimited'])
      expect(problemsOf({ labels: { [label]: value } })).toBe('');
    for (const value of ['-1', '1.5', 'never', '']) {
      expect(problemsOf({ labels: { [label]: value } })).toContain(`labels.${label} must be`);
    }
  }
});

test('all problems of a pool are reported together, including labels and sizes', () => {
  const body = { id: 'A', size: 3, max_size: 2, labels: { 'a b': 'c', 'svc-idle-to-recycle': 'x' } };
  expect(readPool(body)).toEqual({
    ok: false,
    problems: [
      'resources is required',
      expect.stringContaining('id must be'),
      'labels.a b must be a valid label key',
      expect.stringContaining('labels.svc-idle-to-recycle must be'),
      'max_size is less than size',
    ],
  });
});

test('size and max_size are not compared when size is invalid', () => {
  expect(problemsOf({ size: 'x', max_size: 2, horizontal_pod_autoscaler_spec: '{"maxReplicas":3}' })).toBe(
    'size must be an integer',
  );
});

describe('refusals', () => {
  const json = (value: unknown) => JSON.stringify(value);
  test.each<[string, Record<string, unknown>, string]>([
    ['no id', { id: undefined }, 'id is required'],
    ['an id with an upper-case letter', { id: 'Pool' }, 'id must be 1 to 40 lowercase letters'],
    ['an id of 41 characters', { id: 'a'.repeat(41) }, 'id must have at most 40 characters'],
    ['a group that ends with "-"', { group: 'a-' }, 'group must be 1 to 40 letters'],
    ['a negative size', { size: -1 }, 'size must be between 0 and'],
    ['a size in words', { size: '1' }, 'size must be an integer'],
    ['max_size below size', { size: 2, max_size: 1 }, 'max_size is less than size'],
    [
      'max_size above size together with an HPA',
      { size: 1, max_size: 2, horizontal_pod_autoscaler_spec: '{"maxReplicas":3}' },
      'max_size greater than size and horizontal_pod_autoscaler_spec cannot be set at the same time',
    ],
    ['an idle time below -1', { idle_recycle_time: { reserved: -2 } }, 'idle_recycle_time.reserved must be between -1'],
    ['an image of 201 characters', { image: 'x'.repeat(201) }, 'image must have at most 200'],
    [
      'a runtime class of 65 characters',
      { runtime_class_name: 'x'.repeat(65) },
      'runtime_class_name must have at most 64',
    ],
    ['a negative pending threshold', { pod_pending_duration_threshold: -1 }, 'pod_pending_duration_threshold must be'],
    ['no resources', { resources: undefined }, 'resources is required'],
    ['no requests', { resources: { limits: RESOURCES.limits } }, 'resources.requests is required'],
    ['no limits', { resources: { requests: RESOURCES.requests } }, 'resources.limits is required'],
    [
      'requests without memory',
      { resources: { ...RESOURCES, requests: { cpu: '1m' } } },
      'resources.requests.memory is required',
    ],
    [
      'cpu in cores',
      { resources: { ...RESOURCES, requests: { cpu: '1', memory: '1Mi' } } },
      'resources.requests.cpu must be milli-cores',
    ],
    [
      'memory in M',
      { resources: { ...RESOURCES, limits: { cpu: '1000m', memory: '1G' } } },
      'resources.limits.memory must be a number with the suffix Mi or Gi',
    ],
    [
      'a request above its limit',
      { resources: { ...RESOURCES, requests: { cpu: '2000m', memory: '1Mi' } } },
      'resources.requests.cpu is greater than its limit: 2000m > 1000m',
    ],
    [
      'memory requests above the limit in another unit',
      { resources: { ...RESOURCES, requests: { cpu: '1m', memory: '1025Mi' } } },
      'resources.requests.memory is greater',
    ],
    ['an invalid label key', { labels: { 'a b': 'x' } }, 'labels.a b must be a valid label key'],
    ['an invalid label value', { labels: { a: 'x y' } }, 'labels.a must be a valid label value'],
    ['a label of the platform', { labels: { 'rookery.io/x': 'y' } }, 'labels.rookery.io/x cannot be set'],
    ['an invalid node selector', { node_selector: { a: 'x y' } }, 'node_selector.a must be a label value'],
    ['environment with a number', { environment: { A: 1 } }, 'environment.A must be a string'],
    ['volumes that are not a text', { volumes: [] }, 'volumes must be a string'],
    ['volumes that are not JSON', { volumes: '[' }, 'volumes must be a JSON text:'],
    ['volumes that are not an array', { volumes: '{}' }, 'volumes must be an array'],
    ['a volume without name', { volumes: json([{ emptyDir: {} }]) }, 'volumes[0].name is required'],
    ['a volume without source', { volumes: json([{ name: 'a' }]) }, 'volumes[0] must have exactly one source'],
    ['a volume with two sources', { volumes: json([{ name: 'a', emptyDir: {}, hostPath: { path: '/x' } }]) }, 'got 2'],
    [
      'a volume with an unknown source',
      { volumes: json([{ name: 'a', hostpath: {} }]) },
      'volumes[0].hostpath is no field of it',
    ],
    [
      'a hostPath without path',
      { volumes: json([{ name: 'a', hostPath: {} }]) },
      'volumes[0].hostPath.path is required',
    ],
    [
      'a claim without name',
      { volumes: json([{ name: 'a', persistentVolumeClaim: {} }]) },
      'persistentVolumeClaim.claimName is required',
    ],
    [
      'two volumes of one name',
      {
        volumes: json([
          { name: 'a', emptyDir: {} },
          { name: 'a', emptyDir: {} },
        ]),
      },
      'volumes[1].name repeats "a"',
    ],
    ['a volume mount without path', { volume_mounts: json([{ name: 'a' }]) }, 'volume_mounts[0].mountPath is required'],
    [
      'two volume mounts at one path',
      {
        volume_mounts: json([
          { name: 'a', mountPath: '/x' },
          { name: 'b', mountPath: '/x' },
        ]),
      },
      'volume_mounts[1].mountPath repeats',
    ],
    [
      'a toleration with an unknown effect',
      { tolerations: json([{ key: 'a', effect: 'Never' }]) },
      'tolerations[0].effect must be one of',
    ],
    [
      'a toleration of everything without Exists',
      { tolerations: json([{ effect: 'NoSchedule' }]) },
      'must have the operator Exists',
    ],
    [
      'tolerationSeconds without NoExecute',
      { tolerations: json([{ key: 'a', tolerationSeconds: 1 }]) },
      'only with the effect NoExecute',
    ],
    [
      'an affinity without terms',
      { affinities: json({ nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: {} } }) },
      'nodeSelectorTerms is required',
    ],
    [
      'a pod affinity term without topologyKey',
      { affinities: json({ podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [{}] } }) },
      'topologyKey is required',
    ],
    [
      'a weight of 101',
      {
        affinities: json({
          nodeAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 101, preference: {} }] },
        }),
      },
      'weight must be between 1 and 100',
    ],
    [
      'an affinity of an unknown kind',
      { affinities: json({ nodeaffinity: {} }) },
      'affinities.nodeaffinity is no field',
    ],
    [
      'an operator In without values',
      {
        affinities: json({
          podAntiAffinity: {
            requiredDuringSchedulingIgnoredDuringExecution: [
              { topologyKey: 'a', labelSelector: { matchExpressions: [{ key: 'a', operator: 'In' }] } },
            ],
          },
        }),
      },
      'must have values with the operator In',
    ],
    [
      'a spread constraint without maxSkew',
      { topology_spread_constraints: json([{ topologyKey: 'a', whenUnsatisfiable: 'DoNotSchedule' }]) },
      'topology_spread_constraints[0].maxSkew is required',
    ],
    [
      'a spread constraint of maxSkew 0',
      { topology_spread_constraints: json([{ maxSkew: 0, topologyKey: 'a', whenUnsatisfiable: 'DoNotSchedule' }]) },
      'maxSkew must be between 1',
    ],
    [
      'an HPA without maxReplicas',
      { horizontal_pod_autoscaler_spec: '{}' },
      'horizontal_pod_autoscaler_spec.maxReplicas is required',
    ],
    [
      'an HPA with minReplicas above maxReplicas',
      { horizontal_pod_autoscaler_spec: json({ minReplicas: 3, maxReplicas: 2 }) },
      'must not have minReplicas (3) above maxReplicas (2)',
    ],
    [
      'an HPA metric without its source',
      { horizontal_pod_autoscaler_spec: json({ maxReplicas: 2, metrics: [{ type: 'Resource' }] }) },
      'must have the field resource',
    ],
    [
      'an HPA target without its number',
      {
        horizontal_pod_autoscaler_spec: json({
          maxReplicas: 2,
          metrics: [{ type: 'Resource', resource: { name: 'cpu', target: { type: 'Utilization' } } }],
        }),
      },
      'must have averageUtilization',
    ],
  ])('a pool with %s is refused', (_, changes, problem) => {
    expect(problemsOf(changes)).toContain(problem);
  });
});

test('whole Kubernetes objects are kept as they were sent', () => {
  const whole = {
    volumes: JSON.stringify([
      { name: 'logs', hostPath: { path: '/var/log', type: 'DirectoryOrCreate' } },
      { name: 'data', persistentVolumeClaim: { claimName: 'data', readOnly: true } },
      { name: 'tmp', emptyDir: { medium: 'Memory', sizeLimit: '64Mi' } },
    ]),
    volume_mounts: JSON.stringify([{ name: 'logs', mountPath: '/logs', readOnly: true, subPath: null }]),
    tolerations: JSON.stringify([
      { operator: 'Exists' },
      { key: 'gpu', operator: 'Equal', value: 'a', effect: 'NoExecute', tolerationSeconds: 60 },
    ]),
    affinities: JSON.stringify({
      nodeAffinity: {
        requiredDuringSchedulingIgnoredDuringExecution: {
          nodeSelectorTerms: [{ matchExpressions: [{ key: 'zone', operator: 'In', values: ['a'] }] }],
        },
      },
      podAntiAffinity: {
        preferredDuringSchedulingIgnoredDuringExecution: [
          {
            weight: 1,
            podAffinityTerm: { topologyKey: 'kubernetes.io/hostname', labelSelector: { matchLabels: { app: 'x' } } },
          },
        ],
      },
    }),
    topology_spread_constraints: JSON.stringify([
      { maxSkew: 1, topologyKey: 'zone', whenUnsatisfiable: 'ScheduleAnyway' },
    ]),
    horizontal_pod_autoscaler_spec: JSON.stringify({
      scaleTargetRef: { anything: 1 },
      minReplicas: 1,
      maxReplicas: 5,
      metrics: [
        { type: 'Resource', resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization: 50 } } },
      ],
      behavior: {
        scaleDown: { stabilizationWindowSeconds: 60, policies: [{ type: 'Pods', value: 1, periodSeconds: 60 }] },
      },
    }),
    node_selector: { 'kubernetes.io/os': 'linux' },
    labels: { app: 'x', 'svc-idle-to-recycle': 'unlimited' },
  };
  expect(specOf(whole)).toMatchObject(whole);
});

describe('update of a pool', () => {
  const fixed = specOf({ size: 2 });
  const scalable = specOf({ size: 2, max_size: 4 });

  test('a fixed pool keeps max_size equal to size', () => {
    expect(mergePoolUpdate(fixed, { size: 5 })).toMatchObject({ ok: true, value: { size: 5, max_size: 5 } });
    expect(mergePoolUpdate(fixed, { max_size: 5 })).toMatchObject({ ok: false });
  });

  test('a scalable pool keeps the fields that are not sent', () => {
    expect(mergePoolUpdate(scalable, { size: 3 })).toMatchObject({ ok: true, value: { size: 3, max_size: 4 } });
    expect(mergePoolUpdate(scalable, { max_size: 9 })).toMatchObject({ ok: true, value: { size: 2, max_size: 9 } });
    expect(mergePoolUpdate(scalable, { size: 5 })).toMatchObject({
      ok: false,
      problems: ['max_size is less than size'],
    });
  });

  test('a scalable pool stays scalable, and refuses an HPA while max_size is above size', () => {
    expect(mergePoolUpdate(scalable, { max_size: 2 })).toMatchObject({ ok: true, value: { scalable: true } });
    expect(mergePoolUpdate(scalable, { horizontal_pod_autoscaler_spec: '{"maxReplicas":3}' })).toMatchObject({
      ok: false,
    });
  });

  test('a valid pool has size ≤ max_size, and a fixed pool has max_size = size', () => {
    const number = fc.option(fc.integer({ min: 0, max: 10 }), { nil: undefined });
    fc.assert(
      fc.property(
        fc.record({ size: number, max_size: number }),
        fc.array(fc.record({ size: number, max_size: number })),
        (first, updates) => {
          const created = readPool({ ...SMALLEST, ...first });
          if (!created.ok) return;
          let pool = created.value;
          for (const { size, max_size } of updates) {
            const merged = mergePoolUpdate(pool, {
              ...(size === undefined ? {} : { size }),
              ...(max_size === undefined ? {} : { max_size }),
            });
            if (merged.ok) pool = merged.value;
            expect(pool.scalable).toBe(created.value.scalable);
            expect(pool.max_size).toBeGreaterThanOrEqual(pool.size);
            if (!pool.scalable) expect(pool.max_size).toBe(pool.size);
          }
        },
      ),
    );
  });
});

test('readPool never throws, whatever JSON its fields contain', () => {
  const fields = [...Object.keys(specOf())];
  const value = fc.oneof(fc.jsonValue(), fc.json(), fc.constant(RESOURCES));
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom(...fields), value), body => void readPool(body)),
    { numRuns: 500 },
  );
});
