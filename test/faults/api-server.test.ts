import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { KubernetesBed, PATIENCE } from '../e2e/kubernetes-bed.ts';
import { KUBERNETES_START_MS } from '../parts/kubernetes.ts';
import { Component } from '../parts/kubernetes-components.ts';
import { describeWith } from '../probe.ts';

const TEST_MS = 300_000;
/** Bounds the wait for a component that restarts. Every request fails while the component starts. */
const BACK = { timeout: 120_000, interval: 100 };

const CODE = `
count = 0


def handle(event, context):
    global count
    count += 1
    return count
`;

describeWith(['kubernetes-components'], 'a cluster whose components can be stopped', () => {
  describe('the API server when it stops and starts again', { timeout: TEST_MS }, () => {
    let kubernetes: KubernetesBed;
    let apiServer: Component;

    beforeAll(async () => {
      kubernetes = await KubernetesBed.start({ 'work.py': CODE });
      apiServer = new Component(kubernetes.namespace.kubeconfig, 'apiserver');
    }, KUBERNETES_START_MS);

    afterAll(async () => {
      await apiServer?.start();
      await vi.waitFor(() => kubernetes?.pods(), BACK);
      await kubernetes?.close();
    }, TEST_MS);

    test('the service answers calls, keeps pods and instances, and sees changes made meanwhile', async () => {
      await kubernetes.createPool('pool', { reuse: true, size: 3 });
      await kubernetes.poolRuns('pool', 3);
      const own = await kubernetes.createOwn('own', 'work.handle');
      const claimed = await kubernetes.createClaimed('claimed', 'work.handle', 'pool');
      const broken = await kubernetes.createClaimed('broken', 'work.handle', 'pool');
      const uids = async (ids: readonly string[]) =>
        await Promise.all(ids.map(async id => (await kubernetes.podOf(id)).metadata.uid));
      const before = await uids([own, claimed]);
      const brokenPod = await kubernetes.podOf(broken);
      const answers: unknown[] = [];
      let isOver = false;
      const calling = (async () => {
        while (!isOver) {
          for (const id of [own, claimed]) answers.push(await kubernetes.value(id).catch(String));
        }
      })();

      onTestFinished(() => {
        isOver = true;
      });

      await apiServer.kill();
      const seen = answers.length;
      await vi.waitFor(() => expect(answers.length).toBeGreaterThan(seen + 20), PATIENCE);
      for (const id of [own, claimed]) expect(await kubernetes.record(id)).toMatchObject({ status: 'RUNNING' });
      // The API server cannot report this exit, but the manager in the pod does. The command ends the pod's
      // own process and may fail before its answer arrives.
      await kubernetes.tryExec(broken, 'kill -TERM 1');
      await kubernetes.hasFailed(broken, /^instance exited: /);
      const refused = await kubernetes.tryOwn('late', 'work.handle');
      expect(refused.status).toBeGreaterThanOrEqual(500);

      await apiServer.start();
      await vi.waitFor(() => kubernetes.pods(), BACK);
      // The pod of the failed instance is removed, and its pool becomes complete again.
      await vi.waitFor(
        async () => expect((await kubernetes.bed.ask('DELETE', `/api/agent/${broken}?grace=0`)).status).toBe(200),
        PATIENCE,
      );
      await kubernetes.poolRuns('pool', 3);
      await vi.waitFor(async () => {
        const uidsNow = (await kubernetes.pods()).map(({ metadata }) => metadata?.uid);
        expect(uidsNow).not.toContain(brokenPod.metadata.uid);
      }, PATIENCE);
      await vi.waitFor(async () => {
        const id = await kubernetes.createOwn(`new-${answers.length}`, 'work.handle');
        expect(await kubernetes.value(id)).toBe(1);
        await kubernetes.delete(id);
      }, PATIENCE);
      isOver = true;
      await calling;
      const half = answers.length / 2;
      expect(answers).toEqual(Array.from({ length: half }, (_, index) => [index + 1, index + 1]).flat());
      expect(await uids([own, claimed])).toEqual(before);

      for (const id of [own, claimed]) await kubernetes.delete(id);
      await kubernetes.deletePool('pool');
      await kubernetes.nothingIsLeft();
    });
  });
});
