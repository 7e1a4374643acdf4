import { afterAll } from 'vitest';
import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { describeFlow } from './flow.ts';

let namespace: TestNamespace | undefined;
afterAll(async () => await namespace?.close());

describeFlow('sandboxes in pods', {
  ...{ file: 'pods.py', environment: 'python', parts: ['kubernetes'], startMs: KUBERNETES_START_MS },
  serviceArgs: async () => {
    namespace = await kubernetesNamespace();
    const settings = {
      defaultExecutor: 'kubernetes',
      'kubernetes.kubeconfig': namespace.kubeconfig,
      'kubernetes.namespace': namespace.name,
      'kubernetes.image': await kubernetesImage(),
    };
    return Object.entries(settings).flatMap(([name, value]) => ['--set', `${name}=${value}`]);
  },
});
