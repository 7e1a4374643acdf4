import { createHmac, randomBytes } from 'node:crypto';
import type { V1Secret } from '@kubernetes/client-node';
import { failedPrecondition } from '../../core/error.ts';
import { type Cluster, statusOf } from './cluster.ts';
import { LABEL_INSTALLATION, secretName } from './labels.ts';
import { POD } from './manager.ts';

const KEY_BYTES = 32;

/** The secret of this installation in its namespace, of which every pod's key is made. */
export class InstallationSecret {
  readonly #cluster: Cluster;
  readonly #installationId: string;
  #key: Promise<Buffer> | undefined;

  constructor(cluster: Cluster, installationId: string) {
    this.#cluster = cluster;
    this.#installationId = installationId;
  }

  /** Made on the first use, by whichever replica is first: a pod that needs it cannot start before. */
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

  /** What the manager of a pod, and nobody else, can know too. */
  async keyOf(podUid: string): Promise<string> {
    return createHmac('sha256', await this.get())
      .update(podUid)
      .digest('hex');
  }

  async #readOrMake(): Promise<Buffer> {
    const secrets = `/api/v1/namespaces/${this.#cluster.namespace}/secrets`;
    const name = secretName(this.#installationId);
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
