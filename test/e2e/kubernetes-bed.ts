import { createHash } from 'node:crypto';
import { chmodSync } from 'node:fs';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { CoordinationV1Api, type V1Pod } from '@kubernetes/client-node';
import { pack } from 'tar-stream';
import { expect, vi } from 'vitest';
import type { TestNamespace } from '../parts/kubernetes.ts';
import { kubernetesImage, kubernetesNamespace } from '../parts/kubernetes.ts';
import { type Answer, Bed } from './agents.ts';

/** Timeout for a pod to be created, scheduled and started, or ended, on a busy machine. */
export const PATIENCE = { timeout: 90_000, interval: 100 };
/** Directory in which pods of pools expect code. */
const CODE_DIR = '/opt/function/code';
/** The Python of the product's image. */
const RUNTIME = 'python3.11';
/** Size of the test pods and of the pools' pods. */
const SIZE = { cpu: 100, memory: 64 };
const AMOUNTS = { cpu: `${SIZE.cpu}m`, memory: `${SIZE.memory}Mi` };

/** A served Rookery whose instances are pods in the namespace of a test file. */
export class KubernetesBed {
  readonly bed: Bed;
  readonly namespace: TestNamespace;
  readonly image: string;

  /** Code package with the files of the code directory. */
  readonly #package: string;

  private constructor(bed: Bed, namespace: TestNamespace, image: string, code: string) {
    this.#package = code;
    this.bed = bed;
    this.namespace = namespace;
    this.image = image;
  }

  /**
   * Starts a service in `beforeAll` with the timeout `KUBERNETES_START_MS`. `files` maps names to Python
   * source. `kubeconfig` is another path to the same cluster.
   */
  static async start(
    files: Readonly<Record<string, string>>,
    kubeconfigFor: (namespace: TestNamespace) => string | Promise<string> = ({ kubeconfig }) => kubeconfig,
  ): Promise<KubernetesBed> {
    const namespace = await kubernetesNamespace();
    try {
      const image = await kubernetesImage();
      const sets = {
        defaultExecutor: 'kubernetes',
        'kubernetes.kubeconfig': await kubeconfigFor(namespace),
        'kubernetes.namespace': namespace.name,
        'kubernetes.image': image,
      };
      const args = Object.entries(sets).flatMap(([name, value]) => ['--set', `${name}=${value}`]);
      const bed = await Bed.start(files, { args });
      const code = await upload(bed, files);
      // The user of the product's image is neither root nor the user of the tests.
      chmodSync(bed.codeDir, 0o755);
      return new KubernetesBed(bed, namespace, image, code);
    } catch (error) {
      await namespace.close();
      throw error;
    }
  }

  async close(): Promise<void> {
    try {
      await this.bed[Symbol.asyncDispose]();
    } finally {
      await this.namespace.close();
    }
  }

  /** Creates an agent in its own pod, since no pool has its mount. */
  async createOwn(name: string, handler: string, body: object = {}): Promise<string> {
    const answer = await this.tryOwn(name, handler, body);
    if (answer.status !== 200) throw new Error(`create answered ${answer.status}: ${JSON.stringify(answer.body)}`);
    return String(answer.body.instance_id);
  }

  async tryOwn(name: string, handler: string, body: object = {}): Promise<Answer> {
    const spec = { runtime: RUNTIME, rootfs: { imageurl: '' }, ...SIZE };
    return await this.bed.ask('POST', '/api/agent', this.bed.createBody(name, handler, spec, body));
  }

  /** Creates an agent from a code package, in a pod of the given pool. */
  async createClaimed(
    name: string,
    handler: string,
    poolId: string,
    env: Readonly<Record<string, string>> = {},
  ): Promise<string> {
    const body = {
      namespace: 'e2e',
      name,
      env_vars: env,
      mounts: [{ source: this.#package, target: CODE_DIR, readonly: true }],
      runtime_spec: { runtime: RUNTIME, codePath: CODE_DIR, handler, rootfs: { imageurl: '' }, ...SIZE },
    };
    const answer = await this.bed.ask('POST', '/api/agent', body, { headers: { 'x-pool-label': `pool=${poolId}` } });
    if (answer.status !== 200) throw new Error(`create answered ${answer.status}: ${JSON.stringify(answer.body)}`);
    const id = String(answer.body.instance_id);
    expect(await this.record(id)).toMatchObject({ pool_id: poolId });
    return id;
  }

  async record(id: string): Promise<Record<string, unknown>> {
    const { body } = await this.bed.ask('GET', `/api/agent/${id}`);
    return (body.instance ?? body) as Record<string, unknown>;
  }

  async delete(id: string): Promise<void> {
    expect((await this.bed.ask('DELETE', `/api/agent/${id}?grace=0`)).status).toBe(200);
  }

  /** Returns the value of the handler. */
  async value(id: string, event: unknown = {}): Promise<unknown> {
    const answer = await this.bed.invoke(id, event);
    if (answer.status !== 200) throw new Error(`the call answered ${answer.status}: ${answer.body.message}`);
    return answer.body.data;
  }

  async hasFailed(id: string, because: RegExp): Promise<void> {
    await vi.waitFor(
      async () =>
        expect(await this.record(id)).toMatchObject({
          status: 'FAILED',
          status_reason: expect.stringMatching(because),
        }),
      PATIENCE,
    );
  }

  async createPool(id: string, fields: object = {}): Promise<void> {
    const pool = { id, size: 1, labels: { pool: id }, resources: { requests: AMOUNTS, limits: AMOUNTS }, ...fields };
    const { body } = await this.bed.ask('POST', '/serverless/v1/podpools', { pools: [pool] }, { meta: true });
    expect(body).toMatchObject({ code: 0 });
  }

  async deletePool(id: string): Promise<void> {
    const { body } = await this.bed.ask('DELETE', `/serverless/v1/podpools?id=${id}&group=`, undefined, { meta: true });
    expect(body).toMatchObject({ code: 0 });
    await vi.waitFor(async () => expect(await this.pool(id)).toBeUndefined(), PATIENCE);
  }

  async pool(id: string): Promise<Record<string, unknown> | undefined> {
    const { body } = await this.bed.ask('GET', `/serverless/v1/podpools?id=${id}`, undefined, { meta: true });
    return (body as { result?: { pools?: Record<string, unknown>[] } }).result?.pools?.[0];
  }

  async poolRuns(id: string, readyCount = 1): Promise<void> {
    await vi.waitFor(
      async () => expect(await this.pool(id)).toMatchObject({ status: 4, ready_count: readyCount }),
      PATIENCE,
    );
  }

  /** Returns the pod of an instance. */
  async podOf(id: string): Promise<V1Pod & { readonly metadata: { readonly name: string; readonly uid: string } }> {
    const name = String((await this.record(id)).sandbox_id);
    const pod = await this.namespace.core.readNamespacedPod({ namespace: this.namespace.name, name });
    return pod as Awaited<ReturnType<KubernetesBed['podOf']>>;
  }

  async exec(id: string, command: string): Promise<string> {
    const { status, body } = await this.tryExec(id, command);
    expect(status).toBe(200);
    return String(body.stdout);
  }

  async tryExec(id: string, command: string): Promise<Answer> {
    return await this.bed.ask('POST', `/api/agent/${id}/exec`, { command });
  }

  async logs(id: string): Promise<string> {
    return await (await fetch(`${this.bed.server.frontendUrl}/api/agent/${id}/logs`)).text();
  }

  /**
   * Makes the node end a pod as Failed. Kubernetes never restarts such a pod, whatever its restart policy is.
   */
  async fail({ metadata }: V1Pod): Promise<void> {
    await this.namespace.core.patchNamespacedPod({
      namespace: this.namespace.name,
      name: metadata?.name ?? '',
      body: [{ op: 'add', path: '/spec/activeDeadlineSeconds', value: 1 }],
    });
  }

  async pods(): Promise<readonly V1Pod[]> {
    return (await this.namespace.core.listNamespacedPod({ namespace: this.namespace.name })).items;
  }

  /**
   * Waits until all objects of instances and pools are removed. Only the Secret of the installation remains,
   * with the key of its pods.
   */
  async nothingIsLeft(): Promise<void> {
    const { core, apps, batch, autoscaling, config, name: namespace } = this.namespace;
    const at = { namespace };
    const namesOf = ({ items }: { readonly items: readonly { readonly metadata?: { readonly name?: string } }[] }) =>
      items.map(({ metadata }) => metadata?.name ?? '');
    await vi.waitFor(async () => {
      const left = {
        pods: namesOf(await core.listNamespacedPod(at)),
        replicaSets: namesOf(await apps.listNamespacedReplicaSet(at)),
        autoscalers: namesOf(await autoscaling.listNamespacedHorizontalPodAutoscaler(at)),
        jobs: namesOf(await batch.listNamespacedJob(at)),
        claims: namesOf(await core.listNamespacedPersistentVolumeClaim(at)),
        services: namesOf(await core.listNamespacedService(at)),
        leases: namesOf(await config.makeApiClient(CoordinationV1Api).listNamespacedLease(at)),
        configMaps: namesOf(await core.listNamespacedConfigMap(at)).filter(name => name !== 'kube-root-ca.crt'),
        secrets: namesOf(await core.listNamespacedSecret(at)),
      };
      expect(left).toEqual({
        ...{
          pods: [],
          replicaSets: [],
          autoscalers: [],
          jobs: [],
          claims: [],
          services: [],
          leases: [],
          configMaps: [],
        },
        secrets: [expect.stringMatching(/^rookery-[0-9a-f]{8}$/)],
      });
    }, PATIENCE);
  }
}

/** Uploads a code package and returns its source for a mount. */
async function upload(bed: Bed, files: Readonly<Record<string, string>>): Promise<string> {
  const archive = pack();
  for (const [name, source] of Object.entries(files)) archive.entry({ name }, source);
  archive.finalize();
  const bytes = gzipSync(await buffer(archive));
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const answer = await fetch(`${bed.server.frontendUrl}/api/code/${sha256}`, { method: 'PUT', body: bytes });
  if (answer.status !== 200) throw new Error(`the code was not taken: ${await answer.text()}`);
  return `code://${sha256}`;
}
