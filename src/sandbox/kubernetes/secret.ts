import { createHmac, randomBytes } from 'node:crypto';
import type { V1Secret } from '@kubernetes/client-node';
import { failedPrecondition } from '../../core/error.ts';
import { type KubernetesApi, statusOf } from './cluster.ts';
import { LABEL_INSTALLATION } from './labels.ts';
import { POD } from './manager.ts';

const KEY_BYTES = 32;

/** Secret of this installation in its namespace, from which every pod's key is derived. */
export class InstallationSecret {
  readonly #cluster: KubernetesApi;
  readonly #installationId: string;
  readonly #name: string;
  #key: Promise<Buffer> | undefined;

  constructor(options: { readonly cluster: KubernetesApi; readonly installationId: string; readonly name: string }) {
    this.#cluster = options.cluster;
    this.#installationId = options.installationId;
    this.#name = options.name;
  }

  /** Returns the secret. The first replica that needs it creates it, because pods cannot start without it. */
  get(): Promise<Buffer> {
    if (this.#key === undefined) {
      const reading = this.#readOrMake();
      this.#key = reading;
      reading.catch(() => {
        this.#key = undefined;
      });
    }
    return this.#key;
  }

  /** Returns the key of a pod, which only the pod's manager can know too. */
  async keyOf(podUid: string): Promise<string> {
    return createHmac('sha256', await this.get())
      .update(podUid)
      .digest('hex');
  }

  async #readOrMake(): Promise<Buffer> {
    const secrets = `/api/v1/namespaces/${this.#cluster.namespace}/secrets`;
    const name = this.#name;
    const read = () => this.#cluster.request<V1Secret>('read the secret of the pods', { path: `${secrets}/${name}` });
    try {
      return keyIn(await read(), name);
    } catch (error) {
      if (statusOf(error) !== 404) throw error;
    }
    const body = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name, labels: { [LABEL_INSTALLATION]: this.#installationId } },
      type: 'Opaque',
      immutable: true,
      data: { [POD.secretEntry]: randomBytes(KEY_BYTES).toString('base64') },
    };
    try {
      const made = await this.#cluster.request<V1Secret>('make the secret of the pods', {
        method: 'POST',
        path: secrets,
        body,
      });
      return keyIn(made, name);
    } catch (error) {
      if (statusOf(error) !== 409) throw error;
      return keyIn(await read(), name);
    }
  }
}

function keyIn(secret: V1Secret, name: string): Buffer {
  const key = Buffer.from(secret.data?.[POD.secretEntry] ?? '', 'base64');
  if (key.length !== KEY_BYTES) {
    throw failedPrecondition(
      `the secret ${name} has no ${POD.secretEntry} of ${KEY_BYTES} bytes: delete it, and it is made again`,
    );
  }
  return key;
}
