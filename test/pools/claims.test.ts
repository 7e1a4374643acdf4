import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { readPool } from '../../src/core/pool.ts';
import { forEachOf } from '../../src/lib/parallel.ts';
import type { KubernetesApi } from '../../src/sandbox/kubernetes/cluster.ts';
import { KUBERNETES_START_MS, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { countRequests, type ServiceAccount, serviceAccount } from '../parts/kubernetes-requests.ts';
import { describeWith } from '../probe.ts';
import { asked as askedFor, newInstallation, PAUSE, type TestNode, testNode } from './pools.ts';

/** Number of pods. `ROOKERY_TEST_CLAIMS=1000` is the documented size of a large cluster and takes minutes. */
const PODS = Number(process.env.ROOKERY_TEST_CLAIMS || 60);
/** Allowed requests in addition to claims: a watch that ended lists and watches again. */
const OF_WATCHES = 6;
const AT_ONCE = 24;
const LONG = 300_000;

describeWith(['kubernetes'], 'claims of several replicas', () => {
  let namespace: TestNamespace;
  let account: ServiceAccount;
  beforeAll(async () => {
    namespace = await kubernetesNamespace();
    account = await serviceAccount(namespace);
  }, KUBERNETES_START_MS);
  afterAll(async () => {
    await account?.[Symbol.asyncDispose]();
    await namespace?.close();
  }, LONG);

  test('each pod has one winner, with at most three requests a claim, when three replicas claim all pods', {
    timeout: LONG,
  }, async () => {
    const installation = newInstallation();
    const nodes: TestNode[] = [];
    try {
      nodes.push(await testNode(namespace, installation));
      const [maker] = nodes as [TestNode];
      await makeReadyPods(maker.cluster, installation);
      const place = { kubeconfig: account.kubeconfig, name: namespace.name };
      for (const nodeId of ['node-b', 'node-c', 'node-d']) nodes.push(await testNode(place, installation, { nodeId }));
      const claimers = nodes.slice(1) as [TestNode, ...TestNode[]];
      await using requests = await countRequests(namespace, account.name);
      await vi.waitFor(() => {
        for (const { pods } of claimers) expect([...pods.all()].filter(isReady)).toHaveLength(PODS);
      }, 60_000);
      const before = await requests.now();
      const beganAt = performance.now();
      const ids = Array.from({ length: PODS }, (_, index) => `instance-${index}`);
      const claims = await Promise.all(
        ids.map((id, index) =>
          (claimers[index % claimers.length] as TestNode).claims.claim(askedFor(id), new AbortController().signal),
        ),
      );
      const tookMs = performance.now() - beganAt;
      const asked = (await requests.now()) - before;
      const names = claims.map(({ pod }) => pod?.metadata?.name ?? '');
      expect(new Set(names).size).toBe(PODS);
      // Compares with the state of the cluster, and not only with the answers to the claimers.
      await vi.waitFor(() => {
        const holders = new Map(
          [...maker.pods.all()].map(({ metadata }) => [metadata?.name, metadata?.labels?.['rookery.io/instance']]),
        );
        expect(names.map(name => holders.get(name))).toEqual(ids);
      }, 60_000);
      expect(asked).toBeGreaterThanOrEqual(PODS);
      expect(asked).toBeLessThanOrEqual(PODS * 3 + OF_WATCHES);
      console.info(`${PODS} claims: ${(asked / PODS).toFixed(3)} requests for each, in ${Math.round(tookMs)} ms`);
    } finally {
      for (const node of nodes) await node.close();
    }
  });

  /** Makes pods that report themselves as ready. No node runs them, because they are never scheduled. */
  async function makeReadyPods(cluster: KubernetesApi, installation: string): Promise<void> {
    const spec = readPool({ id: 'many', size: PODS, reuse: true, resources: RESOURCES });
    if (!spec.ok) throw new Error(spec.problems.join());
    const labels = { 'rookery.io/installation': installation, 'rookery.io/pool': 'many' };
    const template = {
      metadata: { labels: { app: 'none' } },
      spec: { schedulerName: 'nobody', containers: [{ name: 'a', image: PAUSE }] },
    };
    await cluster.request('make a ReplicaSet', {
      method: 'POST',
      path: `/apis/apps/v1/namespaces/${namespace.name}/replicasets`,
      body: {
        ...{ apiVersion: 'apps/v1', kind: 'ReplicaSet' },
        metadata: {
          name: `rookery-${installation.slice(0, 8)}-many`,
          labels,
          annotations: { 'rookery.io/spec': JSON.stringify(spec.value) },
        },
        spec: { replicas: 0, selector: { matchLabels: { app: 'none' } }, template },
      },
    });
    const path = `/api/v1/namespaces/${namespace.name}/pods`;
    await forEachOf(
      Array.from({ length: PODS }, (_, index) => `many-${index}`),
      AT_ONCE,
      async name => {
        const metadata = { name, labels: { ...labels, 'rookery.io/member': 'true', 'rookery.io/retired': 'false' } };
        await cluster.request('make a pod', {
          method: 'POST',
          path,
          body: { metadata, spec: template.spec },
          timeoutMs: 60_000,
        });
        const status = { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] };
        await cluster.request('say that it runs', {
          ...{ method: 'PATCH', patch: 'merge', timeoutMs: 60_000 },
          ...{ path: `${path}/${name}/status`, body: { status } },
        });
      },
    );
  }
});

const RESOURCES = { requests: { cpu: '1m', memory: '8Mi' }, limits: { cpu: '100m', memory: '32Mi' } };

function isReady({ status }: { readonly status?: { readonly phase?: string } }): boolean {
  return status?.phase === 'Running';
}
