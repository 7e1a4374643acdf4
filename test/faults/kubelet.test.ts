import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { KubernetesBed, PATIENCE } from '../e2e/kubernetes-bed.ts';
import { KUBERNETES_START_MS } from '../parts/kubernetes.ts';
import { Component } from '../parts/kubernetes-components.ts';
import { describeWith } from '../probe.ts';

const TEST_MS = 600_000;
/** Kubernetes reports a silent node as not ready after 50 s. */
const SILENCE = { timeout: 240_000, interval: 250 };
const UNKNOWN = /^the state of the pod \S+ is unknown: the node \S+ of the pod does not answer$/;

const CODE = `
count = 0


def handle(event, context):
    global count
    count += 1
    return count
`;

describeWith(['kubernetes-components'], 'a cluster whose components can be stopped', () => {
  describe('the kubelet of a node when it stops and starts again', { timeout: TEST_MS }, () => {
    let kubernetes: KubernetesBed;
    let kubelet: Component;

    beforeAll(async () => {
      kubernetes = await KubernetesBed.start({ 'work.py': CODE });
      kubelet = new Component(kubernetes.namespace.kubeconfig, 'kubelet');
    }, KUBERNETES_START_MS);

    afterAll(async () => {
      await kubelet?.start();
      await kubernetes?.close();
    }, TEST_MS);

    test('instances become unknown without a restart, answer calls, and recover when the kubelet is back', async () => {
      await kubernetes.createPool('pool', { reuse: true });
      await kubernetes.poolRuns('pool');
      const claimed = await kubernetes.createClaimed('claimed', 'work.handle', 'pool');
      const own = await kubernetes.createOwn('own', 'work.handle');
      const leaving = await kubernetes.createOwn('leaving', 'work.handle');
      const staying = [claimed, own];
      const uids = async () => (await kubernetes.pods()).map(({ metadata }) => metadata?.uid).sort();
      const before = await uids();
      const answers: unknown[] = [];
      let isOver = false;
      onTestFinished(() => {
        isOver = true;
      });
      const calling = (async () => {
        while (!isOver) {
          for (const id of staying) answers.push(await kubernetes.value(id).catch(String));
        }
      })();

      await kubelet.kill();
      for (const id of [...staying, leaving]) {
        await vi.waitFor(
          async () =>
            expect(await kubernetes.record(id)).toMatchObject({
              status: 'RUNNING',
              status_reason: expect.stringMatching(UNKNOWN),
            }),
          SILENCE,
        );
      }
      const seen = answers.length;
      await vi.waitFor(() => expect(answers.length).toBeGreaterThan(seen + 20), PATIENCE);

      // The kubelet cannot confirm the end of the pod, so the name stays taken.
      expect(await kubernetes.bed.ask('DELETE', `/api/agent/${leaving}?grace=0`)).toMatchObject({
        status: 500,
        body: { message: expect.stringMatching(/is not confirmed: its node \S+ has not answered yet/) },
      });
      for (const [name, id] of [
        ['own', own],
        ['leaving', leaving],
      ] as const) {
        expect(await kubernetes.tryOwn(name, 'work.handle')).toMatchObject({ status: 409, body: { instance_id: id } });
      }
      expect(await uids()).toEqual(before);

      await kubelet.start();
      for (const id of staying) {
        await vi.waitFor(async () => {
          const record = await kubernetes.record(id);
          expect(record).toMatchObject({ status: 'RUNNING' });
          expect(record).not.toHaveProperty('status_reason');
        }, SILENCE);
      }
      // The service then completes the delete without another request.
      const again = await vi.waitFor(() => kubernetes.createOwn('leaving', 'work.handle'), SILENCE);
      expect(await kubernetes.value(again)).toBe(1);
      isOver = true;
      await calling;
      // Every call succeeded, and the original instance answered it.
      expect(answers).toEqual(Array.from({ length: answers.length / 2 }, (_, index) => [index + 1, index + 1]).flat());
      for (const id of staying) expect(before).toContain((await kubernetes.podOf(id)).metadata.uid);

      for (const id of [...staying, again]) await kubernetes.delete(id);
      await kubernetes.deletePool('pool');
      await kubernetes.nothingIsLeft();
    });
  });
});
