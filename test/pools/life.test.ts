import type { V1Pod } from '@kubernetes/client-node';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { POOL_STATUS } from '../../src/core/pool.ts';
import { KUBERNETES_START_MS, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';
import { asked, type TestPools, testPools } from './pools.ts';

describeWith(['kubernetes'], 'pools in a cluster', () => {
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

  const begin = async () => {
    open = await testPools(namespace);
    return open;
  };
  const isRunning = (pools: TestPools, id: string, readyCount: number) =>
    vi.waitFor(async () => {
      expect(await pools.record(id)).toMatchObject({ status: POOL_STATUS.running, msg: 'Running', readyCount });
    }, PATIENCE);
  const living = (pools: TestPools) =>
    [...pools.pods.all()].filter(pod => pod.metadata?.deletionTimestamp === undefined);
  const nameOf = (pod: V1Pod | null) => pod?.metadata?.name ?? '';
  const NEVER = new AbortController().signal;

  test('a pool keeps as many pods as its size says, and its record counts them', { timeout: LONG }, async () => {
    const pools = await begin();
    await pools.create('a', { size: 2, labels: { tier: 'gold' }, environment: { WORD: 'x' } });
    await isRunning(pools, 'a', 2);
    const [set] = [...pools.sets.all()];
    expect(set?.metadata?.labels).toMatchObject({ 'rookery.io/pool': 'a' });
    expect(living(pools).map(pod => pod.metadata?.labels)).toEqual([
      expect.objectContaining({ tier: 'gold', 'rookery.io/pool': 'a', 'rookery.io/member': 'true' }),
      expect.objectContaining({ tier: 'gold', 'rookery.io/pool': 'a', 'rookery.io/member': 'true' }),
    ]);
    await pools.pools.delete({ id: 'a', group: '' });
    await vi.waitFor(async () => expect(await pools.record('a')).toBeUndefined(), PATIENCE);
    expect([...pools.sets.all(), ...pools.pods.all()]).toEqual([]);
  });

  test('a claimed pod of a pool with reuse stays in the pool and is free again after its release', {
    timeout: LONG,
  }, async () => {
    const pools = await begin();
    await pools.create('a', { size: 1, reuse: true });
    await isRunning(pools, 'a', 1);
    const { pod } = await pools.claims.claim(asked('i1'), NEVER);
    expect(pod?.metadata?.labels).toMatchObject({ 'rookery.io/instance': 'i1', 'rookery.io/member': 'true' });
    const second = pools.claims.claim(asked('i2'), NEVER);
    await pools.claims.release(pod as V1Pod, { isClean: true });
    expect(nameOf((await second).pod)).toBe(nameOf(pod));
    expect(living(pools)).toHaveLength(1);
  });

  test('a claimed pod of a pool without reuse leaves the pool, which replaces the pod immediately', {
    timeout: LONG,
  }, async () => {
    const pools = await begin();
    await pools.create('a', { size: 1 });
    await isRunning(pools, 'a', 1);
    const first = await pools.claims.claim(asked('i1'), NEVER);
    const second = await pools.claims.claim(asked('i2'), NEVER);
    expect(nameOf(second.pod)).not.toBe(nameOf(first.pod));
    await isRunning(pools, 'a', 1);
    // The counted record may be older than the second claim.
    await vi.waitFor(() => expect(living(pools)).toHaveLength(3), PATIENCE);
    await pools.claims.release(first.pod as V1Pod, { isClean: true });
    await vi.waitFor(() => expect(living(pools)).toHaveLength(2), PATIENCE);
  });

  test('neither a smaller size nor the delete of a pool ends a pod with an instance', { timeout: LONG }, async () => {
    const pools = await begin();
    await pools.create('a', { size: 4, reuse: true });
    await isRunning(pools, 'a', 4);
    const held = await Promise.all(['i1', 'i2'].map(id => pools.claims.claim(asked(id), NEVER)));
    await pools.pools.update('a', { size: 1 });
    // Two are held: no fewer.
    await isRunning(pools, 'a', 2);
    await vi.waitFor(
      () => expect(living(pools).map(nameOf).sort()).toEqual(held.map(({ pod }) => nameOf(pod)).sort()),
      PATIENCE,
    );
    await pools.pools.delete({ id: 'a', group: '' });
    await vi.waitFor(() => expect([...pools.sets.all()]).toEqual([]), PATIENCE);
    expect(await pools.record('a')).toMatchObject({ status: POOL_STATUS.deleting });
    expect(living(pools)).toHaveLength(2);
    for (const { pod } of held) await pools.claims.release(pod as V1Pod, { isClean: true });
    await vi.waitFor(async () => expect(await pools.record('a')).toBeUndefined(), PATIENCE);
    expect([...pools.pods.all()]).toEqual([]);
  });
});

const LONG = 120_000;
const PATIENCE = { timeout: 60_000, interval: 50 };
