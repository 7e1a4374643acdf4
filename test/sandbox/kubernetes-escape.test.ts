import { readdirSync, readFileSync } from 'node:fs';
import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';
import { describeEscape, type EscapeFacts } from '../suites/escape.ts';
import { KubernetesFixture } from './kubernetes-fixture.ts';

/**
 * Users of the attacks. With the first the manager is root too. With the second it is the user of the code,
 * as in pods of pools.
 */
const USERS = [
  ['root', 'root'],
  ['an ordinary user', ''],
] as const;

describeWith(['kubernetes'], 'with a cluster', () => {
  const facts: EscapeFacts = {
    ...{ users: USERS, onHostFiles: false, refusesNoNetwork: true, keepsBounding: true },
    makeMs: KUBERNETES_START_MS,
  };
  describeEscape('a pod', facts, async () => {
    const namespace = await kubernetesNamespace();
    const fixture = new KubernetesFixture(namespace, await kubernetesImage());
    return {
      driver: fixture.driver(),
      codePath: fixture.codePath,
      dataDir: fixture.dataDir,
      spec: changes => fixture.spec(changes),
      hostPid: ({ handle }) => processOf(String(handle.data.uid)),
      dispose: async () => {
        await fixture.dispose();
        await namespace.close();
      },
    };
  });
});

/** Returns the process of a pod as this machine, which is the node, numbers it. */
function processOf(uid: string): number {
  const isOfPod = (pid: string) => {
    try {
      return readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes(`pod${uid}`);
    } catch {
      return false;
    }
  };
  const found = readdirSync('/proc').find(name => /^\d+$/.test(name) && isOfPod(name));
  if (found === undefined) throw new Error(`no process of the pod ${uid} runs here`);
  return Number(found);
}
