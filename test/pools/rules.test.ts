import type { V1Pod } from '@kubernetes/client-node';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { POOL_STATUS } from '../../src/core/pool.ts';
import { countPods } from '../../src/pools/policy.ts';
import { KUBERNETES_START_MS, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';
import { asked, type TestPools, testPools } from './pools.ts';

const LONG = 120_000;
const PATIENCE = { timeout: 60_000, interval: 50 };
const NEVER = new AbortController().signal;

describeWith(['kubernetes'], 'rules of pools in a cluster', () => {
  let namespace: TestNamespace;
  let open: TestPools | undefined;
  beforeAll(async () => {
    namespace = await kubernetesNamespace();
  }, KUBERNETES_START_MS);
  afterEach(async () => {
    await open?.close();
    open = undefined;
  });
  afterAll(() => namespace?.close());

  const begin = async (options: Parameters<typeof testPools>[1] = {}) => {
    open = await testPools(namespace, options);
    return open;
  };
  const shows = (pools: TestPools, id: string, record: object) =>
    vi.waitFor(async () => expect(await pools.record(id)).toMatchObject(record), PATIENCE);
  const isRunning = (pools: TestPools, id: string, readyCount: number) =>
    shows(pools, id, { status: POOL_STATUS.running, msg: 'Running', readyCount });
  const living = (pools: TestPools) =>
    [...pools.pods.all()].filter(pod => pod.metadata?.deletionTimestamp === undefined);
  const replicas = (pools: TestPools) => [...pools.sets.all()].map(set => set.spec?.replicas);
  const claim = async (pools: TestPools, id: string, signal = NEVER) => {
    const { pod } = await pools.claims.claim(asked(id), signal);
    return pod as V1Pod;
  };
  const giveBack = (pools: TestPools, pod: V1Pod) => pools.claims.release(pod, { isClean: true });

  test('a pool fails and gives the reason when its image cannot be pulled', { timeout: LONG }, async () => {
    const pools = await begin();
    await pools.create('bad', { size: 1, image: 'local/no-such-image:1' });
    await shows(pools, 'bad', {
      status: POOL_STATUS.failed,
      msg: expect.stringMatching(/ErrImagePull|ImagePullBackOff/),
    });
  });

  test('a pool fails with the words of the cluster when the cluster refuses its pods', { timeout: LONG }, async () => {
    const pools = await begin();
    await pools.create('name', { size: 1, runtime_class_name: 'no-such-class' });
    await shows(pools, 'name', { status: POOL_STATUS.failed, msg: expect.stringContaining('no-such-class') });
  });

  test('a pool stays creating when its pods fit no node, and reports them as pending after the threshold', {
    timeout: LONG,
  }, async () => {
    const pools = await begin();
    await pools.create('lost', {
      size: 1,
      node_selector: { 'no-such-label': 'x' },
      pod_pending_duration_threshold: 2,
    });
    await shows(pools, 'lost', { status: POOL_STATUS.creating, msg: expect.stringContaining('Unschedulable') });
    await shows(pools, 'lost', { status: POOL_STATUS.creating, msg: expect.stringContaining('pending') });
    expect(countPods(pools.backend, Date.now())).toMatchObject([{ pool: 'lost', overdue: 1 }]);
    await vi.waitFor(async () => {
      const { items } = await namespace.core.listNamespacedEvent({ namespace: namespace.name });
      expect(items).toContainEqual(
        expect.objectContaining({
          type: 'Warning',
          source: expect.objectContaining({ component: expect.stringContaining('rookery') }),
          message: expect.stringContaining('lost'),
        }),
      );
    }, PATIENCE);
  });

  test('an autoscaler targets its pool, decides how many pods run, and ends no claimed pod', {
    timeout: LONG,
  }, async () => {
    const pools = await begin();
    const metrics = [
      { type: 'Resource', resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization: 50 } } },
    ];
    const scaleTargetRef = { kind: 'Deployment', name: 'other' };
    const spec = (maxReplicas: number) => JSON.stringify({ minReplicas: 1, maxReplicas, metrics, scaleTargetRef });
    await pools.create('auto', { size: 2, reuse: true, horizontal_pod_autoscaler_spec: spec(5) });
    await isRunning(pools, 'auto', 2);
    const read = async () => {
      const { items } = await namespace.autoscaling.listNamespacedHorizontalPodAutoscaler({
        namespace: namespace.name,
      });
      return items.map(({ spec: made }) => made);
    };
    const name = [...pools.sets.all()][0]?.metadata?.name ?? '';
    const target = { apiVersion: 'apps/v1', kind: 'ReplicaSet', name };
    expect(await read()).toEqual([
      expect.objectContaining({ minReplicas: 1, maxReplicas: 5, metrics, scaleTargetRef: target }),
    ]);
    await pools.pools.update('auto', { horizontal_pod_autoscaler_spec: spec(7) });
    await vi.waitFor(
      async () => expect(await read()).toMatchObject([{ maxReplicas: 7, scaleTargetRef: target }]),
      PATIENCE,
    );
    const scale = (value: number) =>
      namespace.apps.patchNamespacedReplicaSetScale({
        ...{ namespace: namespace.name, name },
        body: [{ op: 'replace', path: '/spec/replicas', value }],
      });
    await scale(3);
    await isRunning(pools, 'auto', 3);
    const held = [await claim(pools, 'i1'), await claim(pools, 'i2')];
    const least = (minReplicas: number) =>
      vi.waitFor(async () => expect(await read()).toMatchObject([{ minReplicas, maxReplicas: 7 }]), PATIENCE);
    // The autoscaler never goes below the minimum, so each pod that it ends then is free.
    await least(2);
    await scale(2);
    const names = held.map(({ metadata }) => metadata?.name).sort();
    await vi.waitFor(
      () =>
        expect(
          living(pools)
            .map(({ metadata }) => metadata?.name)
            .sort(),
        ).toEqual(names),
      PATIENCE,
    );
    for (const pod of held) await giveBack(pools, pod);
    await least(1);
    await pools.pools.delete({ id: 'auto', group: '' });
    await vi.waitFor(async () => expect(await pools.record('auto')).toBeUndefined(), PATIENCE);
    expect(await read()).toEqual([]);
  });

  test('creates wait in order for a pod of a fixed pool, and a create that times out names the pool', {
    timeout: LONG,
  }, async () => {
    const pools = await begin();
    await pools.create('one', { size: 1, reuse: true });
    await isRunning(pools, 'one', 1);
    const order: string[] = [];
    const wait = (id: string) =>
      claim(pools, id).then(async pod => {
        order.push(id);
        await giveBack(pools, pod);
      });
    const first = await claim(pools, 'i0');
    const gone = new AbortController();
    const inVain = claim(pools, 'late', gone.signal);
    const others = [wait('i1'), wait('i2'), wait('i3')];
    gone.abort();
    await expect(inVain).rejects.toThrow(/no pod of pool one became free/);
    await expect(claim(pools, 'over', gone.signal)).rejects.toThrow(/no pod of pool one became free/);
    await giveBack(pools, first);
    await Promise.all(others);
    expect(order).toEqual(['i1', 'i2', 'i3']);
  });

  test('each waiting create grows a scaling pool by at most one pod, and idle surplus pods are removed', {
    timeout: LONG,
  }, async () => {
    const pools = await begin({ claims: { growWaitMs: 15_000 } });
    await pools.create('grow', { size: 1, max_size: 3, reuse: true, idle_recycle_time: { scaled: 2 } });
    await isRunning(pools, 'grow', 1);
    const pods = await Promise.all(['i1', 'i2'].map(id => claim(pools, id)));
    expect(replicas(pools)).toEqual([2]);
    pods.push(await claim(pools, 'i3'));
    expect(replicas(pools)).toEqual([3]);
    await expect(claim(pools, 'i4')).rejects.toThrow('no pod of pool grow became available in 15 s');
    const [kept, ...rest] = pods as [V1Pod, ...V1Pod[]];
    for (const pod of rest) await giveBack(pools, pod);
    await vi.waitFor(() => expect(replicas(pools)).toEqual([1]), PATIENCE);
    await vi.waitFor(
      () => expect(living(pools).map(({ metadata }) => metadata?.name)).toEqual([kept.metadata?.name]),
      PATIENCE,
    );
    expect(pools.pods.get(kept.metadata?.name ?? '')?.metadata?.labels).toMatchObject({ 'rookery.io/instance': 'i1' });
  });

  test.each([
    ['svc-idle-to-recycle', { labels: { 'svc-idle-to-recycle': '1' } }],
    ['yr-idle-to-recycle', { labels: { 'yr-idle-to-recycle': '1' } }],
    ['idle_recycle_time.reserved', { idle_recycle_time: { reserved: 1 } }],
  ])('a used pod that is idle for %s is replaced, a fresh one is not', { timeout: LONG }, async (_name, fields) => {
    const pools = await begin();
    await pools.create('rest', { size: 2, reuse: true, ...fields });
    await isRunning(pools, 'rest', 2);
    const used = await claim(pools, 'i1');
    const fresh = living(pools).find(({ metadata }) => metadata?.name !== used.metadata?.name);
    await giveBack(pools, used);
    await vi.waitFor(
      () => expect(living(pools).map(({ metadata }) => metadata?.name)).not.toContain(used.metadata?.name),
      PATIENCE,
    );
    await isRunning(pools, 'rest', 2);
    // The fresh pod has been idle for longer than the used one, and the controller has judged both.
    expect(living(pools).map(({ metadata }) => metadata?.name)).toContain(fresh?.metadata?.name);
  });

  test('a deleted pod of a pool is replaced, and so is a deleted ReplicaSet', {
    timeout: LONG,
  }, async () => {
    const pools = await begin();
    await pools.create('back', { size: 1 });
    await isRunning(pools, 'back', 1);
    const [pod] = living(pools);
    const at = { namespace: namespace.name, gracePeriodSeconds: 0 };
    await namespace.core.deleteNamespacedPod({ ...at, name: pod?.metadata?.name ?? '' });
    await vi.waitFor(
      () =>
        expect(living(pools).map(each => each.metadata?.uid)).toEqual([
          expect.not.stringMatching(pod?.metadata?.uid ?? ''),
        ]),
      PATIENCE,
    );
    await isRunning(pools, 'back', 1);
    const [set] = [...pools.sets.all()];
    await namespace.apps.deleteNamespacedReplicaSet({ ...at, name: set?.metadata?.name ?? '' });
    await vi.waitFor(
      () =>
        expect([...pools.sets.all()].map(each => each.metadata?.uid)).toEqual([
          expect.not.stringMatching(set?.metadata?.uid ?? ''),
        ]),
      PATIENCE,
    );
    await isRunning(pools, 'back', 1);
  });

  test('pods of a pool avoid pods of other pools unless its affinities differ', {
    timeout: LONG,
  }, async () => {
    const pools = await begin();
    const own = { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [] } };
    await pools.create('usual', { size: 1 });
    await pools.create('own', { size: 1, affinities: JSON.stringify(own) });
    await isRunning(pools, 'usual', 1);
    await isRunning(pools, 'own', 1);
    const affinityOf = (id: string) =>
      [...pools.sets.all()].find(set => set.metadata?.labels?.['rookery.io/pool'] === id)?.spec?.template?.spec
        ?.affinity;
    const [term] = affinityOf('usual')?.podAntiAffinity?.preferredDuringSchedulingIgnoredDuringExecution ?? [];
    expect(term?.podAffinityTerm.labelSelector?.matchExpressions).toContainEqual({
      key: 'rookery.io/pool',
      operator: 'NotIn',
      values: ['usual'],
    });
    expect(affinityOf('own')?.podAntiAffinity?.preferredDuringSchedulingIgnoredDuringExecution ?? []).toEqual([]);
  });
});
