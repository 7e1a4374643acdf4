import type { SandboxSpec } from '../../src/sandbox/driver.ts';
import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';
import { describeEscapeFiles } from '../suites/escape-files.ts';
import { KubernetesFixture } from './kubernetes-fixture.ts';

describeWith(['kubernetes'], 'with a cluster', () => {
  const create = async () => {
    const namespace = await kubernetesNamespace();
    const fixture = new KubernetesFixture(namespace, await kubernetesImage(), { user: 'root' });
    return {
      driver: fixture.driver(),
      codePath: fixture.codePath,
      // A program that renames files in a loop uses all CPU of the sandbox.
      spec: (changes: Partial<SandboxSpec> = {}) => fixture.spec({ cpuMillis: 500, ...changes }),
      dispose: async () => {
        await fixture.dispose();
        await namespace.close();
      },
    };
  };
  // The platform's process is a fork of the pod's manager and writes to the disk of the node.
  const facts = { isSeen: true, program: 'rookery: access', holdsFiles: false };
  describeEscapeFiles('a pod', facts, create, KUBERNETES_START_MS);
});
