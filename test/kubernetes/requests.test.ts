import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { readPool } from '../../src/core/pool.ts';
import type { SandboxSpec } from '../../src/sandbox/driver.ts';
import type { KubernetesDriver } from '../../src/sandbox/kubernetes/driver.ts';
import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { countRequests, type RequestCount, type ServiceAccount, serviceAccount } from '../parts/kubernetes-requests.ts';
import { describeWith } from '../probe.ts';
import { CODE } from '../sandbox/driver-fixture.ts';
import { KubernetesFixture } from '../sandbox/kubernetes-fixture.ts';

const TEST_MS = 180_000;
const PATIENCE = { timeout: 120_000, interval: 100 };
const PODS = 2;
const CREATES = 8;

describeWith(['kubernetes'], 'requests of instances to the API server', () => {
  let namespace: TestNamespace;
  let account: ServiceAccount;
  let fixture: KubernetesFixture;
  let driver: KubernetesDriver;
  let requests: RequestCount;

  beforeAll(async () => {
    namespace = await kubernetesNamespace();
    account = await serviceAccount(namespace);
    const { kubeconfig } = account;
    fixture = new KubernetesFixture(namespace, await kubernetesImage(), { kubeconfig });
    driver = fixture.driver() as KubernetesDriver;
    await driver.warm();
    requests = await countRequests(namespace, account.name);
  }, KUBERNETES_START_MS);

  afterEach(async () => {
    for (const { handle } of await driver.list()) await driver.remove(handle);
  });

  afterAll(async () => {
    await requests?.[Symbol.asyncDispose]();
    await fixture?.dispose();
    await account?.[Symbol.asyncDispose]();
    await namespace?.close();
  });

  const live = async (changes: Partial<SandboxSpec>) => {
    const { handle } = await driver.start(fixture.spec(changes), AbortSignal.timeout(TEST_MS));
    await driver.remove(handle);
  };
  const pool = (id: string, size: number, reuse: boolean) => {
    const amounts = { cpu: '50m', memory: '64Mi' };
    const read = readPool({ id, size, reuse, resources: { requests: amounts, limits: amounts } });
    if (!read.ok) throw new Error(read.problems.join());
    return driver.pools.apply(read.value, size);
  };
  const readyPods = (count: number) =>
    vi.waitFor(async () => {
      const { items } = await namespace.core.listNamespacedPod({ namespace: namespace.name });
      const ready = items.filter(({ status }) => status?.containerStatuses?.every(({ ready: isReady }) => isReady));
      expect(ready.filter(({ metadata }) => metadata?.deletionTimestamp === undefined)).toHaveLength(count);
    }, PATIENCE);
  const claimed = {
    ...{ cpuMillis: 50, memoryMb: 64, mounts: [] },
    platformMounts: [{ source: CODE, target: '/opt/function/code', readonly: true }],
  };

  test('a create from a pool takes one request and its end another, also when the create waits for a pod', {
    timeout: TEST_MS,
  }, async () => {
    await driver.pools.open();
    await pool('again', PODS, true);
    await readyPods(PODS);
    const before = await requests.now();
    await Promise.all(Array.from({ length: CREATES }, () => live(claimed)));
    expect((await requests.now()) - before).toBe(2 * CREATES);
    await driver.pools.disband('again');
    await namespace.core.deleteCollectionNamespacedPod({ namespace: namespace.name, gracePeriodSeconds: 0 });
    await readyPods(0);
  });

  test('a create takes one request and its end another when pods are used once and replaced', {
    timeout: TEST_MS,
  }, async () => {
    await driver.pools.open();
    await pool('once', 1, false);
    await readyPods(1);
    const before = await requests.now();
    for (let index = 0; index < 2; index += 1) await live(claimed);
    expect((await requests.now()) - before).toBe(4);
    await driver.pools.disband('once');
    await namespace.core.deleteCollectionNamespacedPod({ namespace: namespace.name, gracePeriodSeconds: 0 });
    await readyPods(0);
  });

  test('a create with its own pod takes one request, and at most three when it mounts a path of its node', {
    timeout: TEST_MS,
  }, async () => {
    const create = async (changes: Partial<SandboxSpec>) => {
      const before = await requests.now();
      const { handle } = await driver.start(fixture.spec(changes), AbortSignal.timeout(TEST_MS));
      const asked = (await requests.now()) - before;
      await driver.remove(handle);
      return asked;
    };
    expect(await create({ mounts: [] })).toBe(1);
    expect(await create({})).toBeLessThanOrEqual(3);
  });
});
