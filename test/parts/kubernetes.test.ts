import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { describeWith } from '../probe.ts';
import { KUBERNETES_START_MS, kubernetesNamespace, type TestNamespace } from './kubernetes.ts';

describeWith(['kubernetes'], 'the cluster of the tests', () => {
  let namespace: TestNamespace;
  beforeAll(async () => {
    namespace = await kubernetesNamespace();
  }, KUBERNETES_START_MS);
  afterAll(() => namespace?.close());

  test('the cluster of the tests provides a namespace in which pods can be created', async () => {
    await vi.waitFor(() => namespace.core.readNamespacedServiceAccount({ name: 'default', namespace: namespace.name }));
    const { items } = await namespace.core.listNamespacedPod({ namespace: namespace.name });
    expect(items).toEqual([]);
  });

  test('the cluster of the tests removes a namespace with its whole content at once', async () => {
    const other = await kubernetesNamespace();
    await vi.waitFor(() => other.core.readNamespacedServiceAccount({ name: 'default', namespace: other.name }));
    const container = { name: 'main', image: 'docker.io/local/no-such-image:1', imagePullPolicy: 'Never' };
    const pod = { metadata: { name: 'stays', finalizers: [] }, spec: { containers: [container] } };
    await other.core.createNamespacedPod({ namespace: other.name, body: pod });
    await other.close();
    await expect(other.core.readNamespace({ name: other.name })).rejects.toMatchObject({ code: 404 });
    await other.close();
  });
});
