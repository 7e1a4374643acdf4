import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';
import { describeAccountFiles } from '../suites/account-files.ts';
import { KubernetesFixture } from './kubernetes-fixture.ts';

/** User of our image. */
const IMAGE_USER = { name: 'rookery', uid: 10_001 };

describeWith(['kubernetes'], 'with a cluster', () => {
  const create = async () =>
    new KubernetesFixture(await kubernetesNamespace(), await kubernetesImage(), { user: 'root' }).underTest(IMAGE_USER);
  describeAccountFiles('files of a pod', create, KUBERNETES_START_MS);
});
