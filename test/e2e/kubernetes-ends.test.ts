import type { V1Pod } from '@kubernetes/client-node';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { KUBERNETES_START_MS } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';
import { KubernetesBed, PATIENCE } from './kubernetes-bed.ts';

const TEST_MS = 240_000;

const CODE = `
import os, sys, time

count = 0


def handle(event, context):
    global count
    count += 1
    return count


def remember(event, context):
    context.state['n'] = context.state.get('n', 0) + 1
    return context.state['n']


def hang(event, context):
    time.sleep(600)


def die(event, context):
    print('the last words', flush=True)
    os._exit(event['code'])
`;

describeWith(['kubernetes'], 'with a cluster', () => {
  describe('the end of pods without a request to this service', { timeout: TEST_MS }, () => {
    let kubernetes: KubernetesBed;
    const agents: string[] = [];
    const pools: string[] = [];

    beforeAll(async () => {
      kubernetes = await KubernetesBed.start({ 'work.py': CODE });
    }, KUBERNETES_START_MS);
    /** After each fault all agents and pools can be deleted, and no object remains in the cluster. */
    afterEach(async () => {
      for (const id of agents.splice(0)) await kubernetes.delete(id);
      for (const id of pools.splice(0)) await kubernetes.deletePool(id);
      await kubernetes.nothingIsLeft();
    }, TEST_MS);
    afterAll(() => kubernetes?.close(), TEST_MS);

    const own = async (name: string, handler = 'work.handle') => {
      const id = await kubernetes.createOwn(name, handler);
      agents.push(id);
      return id;
    };
    const claimed = async (name: string, pool: string, handler = 'work.handle') => {
      const id = await kubernetes.createClaimed(name, handler, pool);
      agents.push(id);
      return id;
    };
    const pool = async (id: string, fields: object) => {
      await kubernetes.createPool(id, fields);
      pools.push(id);
      await kubernetes.poolRuns(id);
    };
    const evict = async ({ metadata }: V1Pod) => {
      const name = metadata?.name ?? '';
      const { name: namespace, core } = kubernetes.namespace;
      await core.createNamespacedPodEviction({ namespace, name, body: { metadata: { name, namespace } } });
    };

    test('a durable agent sleeps without a pod, and its next call starts it with its state', async () => {
      const id = await kubernetes.createOwn('durable', 'work.remember', { durable: true });
      agents.push(id);
      expect(await kubernetes.value(id)).toBe(1);
      expect((await kubernetes.bed.ask('POST', `/api/agent/${id}/sleep`)).status).toBe(200);
      expect(await kubernetes.record(id)).toMatchObject({ status: 'SLEEPING', sandbox_id: '' });
      await kubernetes.nothingIsLeft();
      expect(await kubernetes.value(id)).toBe(2);
    });

    test("an instance whose own pod is evicted is FAILED with the cluster's message, and its calls end", async () => {
      const id = await own('evicted', 'work.hang');
      const call = kubernetes.bed.invoke(id);
      await vi.waitFor(async () => {
        const { body } = await kubernetes.bed.ask('GET', `/api/agent/${id}`);
        expect(body).toMatchObject({ instance: { status: 'RUNNING' } });
      }, PATIENCE);
      await evict(await kubernetes.podOf(id));
      // The cluster asks the runtime to end, and the runtime may report the end first.
      expect(await call).toMatchObject({
        status: 500,
        body: { message: expect.stringMatching(/the instance is stopping|instance exited: Evicted: /) },
      });
      await kubernetes.hasFailed(id, /^instance exited: Evicted: .*evicting/);
      expect((await kubernetes.bed.invoke(id)).status).toBe(404);
    });

    test.each([{ reuse: true }, { reuse: false }])(
      "an instance whose claimed pod is evicted is FAILED with the cluster's message, and its pool is refilled (%o)",
      async ({ reuse }) => {
        const poolId = `evict-${reuse}`;
        await pool(poolId, { reuse });
        const id = await claimed(`evicted-${reuse}`, poolId);
        expect(await kubernetes.value(id)).toBe(1);
        const pod = await kubernetes.podOf(id);
        await evict(pod);
        await kubernetes.hasFailed(id, /^instance exited: Evicted: .*evicting/);
        await kubernetes.poolRuns(poolId);
        const next = await claimed(`next-${reuse}`, poolId);
        expect(await kubernetes.value(next)).toBe(1);
        expect((await kubernetes.podOf(next)).metadata.uid).not.toBe(pod.metadata.uid);
      },
    );

    test('a pool replaces a free pod that is evicted', async () => {
      await pool('free', { reuse: true });
      const [pod] = await kubernetes.pods();
      await evict(pod as V1Pod);
      await vi.waitFor(async () => {
        const uids = (await kubernetes.pods()).map(({ metadata }) => metadata?.uid);
        expect(uids).toHaveLength(1);
        expect(uids).not.toContain(pod?.metadata?.uid);
      }, PATIENCE);
      await kubernetes.poolRuns('free');
    });

    test('a restarted container of a claimed pod ends its instance, and the pool replaces the pod', async () => {
      await pool('again', { reuse: true });
      const id = await claimed('again', 'again');
      const pod = await kubernetes.podOf(id);
      // The first process of the pod is the manager.
      await kubernetes.exec(id, 'kill -TERM 1');
      await kubernetes.hasFailed(id, /^instance exited: /);
      await kubernetes.delete(agents.pop() as string);
      await vi.waitFor(async () => {
        const living = (await kubernetes.pods()).filter(({ metadata }) => metadata?.deletionTimestamp === undefined);
        expect(living.map(({ metadata }) => metadata?.uid)).toEqual([expect.not.stringMatching(pod.metadata.uid)]);
      }, PATIENCE);
      await kubernetes.poolRuns('again');
      expect(await kubernetes.value(await claimed('after', 'again'))).toBe(1);
    });

    test('a pool replaces a pod that ends as Failed', async () => {
      await pool('failed', { reuse: true });
      const [pod] = (await kubernetes.pods()) as [V1Pod];
      await kubernetes.fail(pod);
      await vi.waitFor(async () => {
        const uids = (await kubernetes.pods()).map(({ metadata }) => metadata?.uid);
        expect(uids).toHaveLength(1);
        expect(uids).not.toContain(pod.metadata?.uid);
      }, PATIENCE);
      await kubernetes.poolRuns('failed');
    });

    test('a FAILED instance keeps the logs of its own pod until it is deleted', async () => {
      const id = await own('dead', 'work.die');
      const answer = await kubernetes.bed.invoke(id, { code: 7 });
      expect(answer).toMatchObject({ status: 500, body: { message: 'invoke failed: instance exited: exit code 7' } });
      await kubernetes.hasFailed(id, /^instance exited: exit code 7$/);
      expect(await kubernetes.logs(id)).toContain('the last words');
      await vi.waitFor(async () => expect((await kubernetes.podOf(id)).status?.phase).toBe('Failed'), PATIENCE);
      expect(await kubernetes.logs(id)).toContain('the last words');
    });
  });
});
