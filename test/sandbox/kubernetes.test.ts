import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';
import { describeDriver } from '../suites/sandbox-driver.ts';
import { KubernetesFixture } from './kubernetes-fixture.ts';

/** User of our image. */
const IMAGE_USER = { name: 'rookery', uid: 10_001 };

describeWith(['kubernetes'], 'with a cluster', () => {
  describeDriver(
    'the kubernetes driver',
    async () =>
      new KubernetesFixture(await kubernetesNamespace(), await kubernetesImage(), { user: 'root' }).underTest(
        IMAGE_USER,
      ),
    KUBERNETES_START_MS,
  );
});
