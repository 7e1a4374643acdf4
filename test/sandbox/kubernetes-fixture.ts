import { randomUUID } from 'node:crypto';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SandboxSpec } from '../../src/sandbox/driver.ts';
import { KubernetesDriver, type KubernetesDriverOptions } from '../../src/sandbox/kubernetes/driver.ts';
import { secretName } from '../../src/sandbox/kubernetes/labels.ts';
import type { TestNamespace } from '../parts/kubernetes.ts';
import type { DriverUnderTest } from '../suites/sandbox-driver.ts';
import { DriverFixture } from './driver-fixture.ts';

export const NO_POD_SETTINGS: KubernetesDriverOptions['pod'] = {
  ...{ nodeSelector: {}, tolerations: [], runtimeClass: null },
  ...{ volumes: [], volumeMounts: [] },
};

/** Drivers on one namespace of a cluster, as one installation. */
export class KubernetesFixture extends DriverFixture<KubernetesDriver, KubernetesDriverOptions> {
  readonly installationId = randomUUID();
  readonly #namespace: TestNamespace;
  readonly #image: string;
  readonly #options: Partial<KubernetesDriverOptions>;
  readonly #user: string;

  /**
   * `image` is our image, which the cluster has. `user` is the user of its sandboxes; `''` selects the user
   * of the image, who is not root.
   */
  constructor(
    namespace: TestNamespace,
    image: string,
    { user = '', ...options }: Partial<KubernetesDriverOptions> & { readonly user?: string } = {},
  ) {
    super(mkdtempSync(join(tmpdir(), 'rookery-kubernetes-')), '/code');
    this.#namespace = namespace;
    this.#image = image;
    this.#options = options;
    this.#user = user;
  }

  protected override make(options: Partial<KubernetesDriverOptions>): KubernetesDriver {
    const { kubeconfig, name: namespace } = this.#namespace;
    return KubernetesDriver.open({
      ...this.common(),
      ...{ nodeId: 'node-1', installationId: this.installationId, onlyProbed: false },
      ...{
        kubeconfig,
        namespace,
        image: this.#image,
        pod: NO_POD_SETTINGS,
        secretName: secretName(this.installationId),
      },
      ...this.#options,
      ...options,
    });
  }

  override spec(changes: Partial<SandboxSpec> = {}): SandboxSpec {
    // Requests less than other tests do, because a node reserves the amount.
    const few = { cpuMillis: 100, memoryMb: 128 };
    return super.spec({ ...few, rootfs: { type: 'image', imageUrl: this.#image, user: this.#user }, ...changes });
  }

  override underTest(user: DriverUnderTest['user']): DriverUnderTest {
    return { ...super.underTest(user, { dispose: () => this.#namespace.close() }), reservesMemory: true };
  }
}
