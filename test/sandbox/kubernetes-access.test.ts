import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';
import { describeAccess } from '../suites/sandbox-access.ts';
import { KubernetesFixture } from './kubernetes-fixture.ts';

/** User of our image. */
const IMAGE_USER = { name: 'rookery', uid: 10_001 };

describeWith(['kubernetes'], 'with a cluster', () => {
  const create = async () =>
    new KubernetesFixture(await kubernetesNamespace(), await kubernetesImage(), { user: 'root' }).underTest(IMAGE_USER);
  describeAccess('ways into a pod', create, '/etc/shadow', KUBERNETES_START_MS);
});
