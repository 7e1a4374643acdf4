import { randomBytes } from 'node:crypto';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { AppsV1Api, AutoscalingV2Api, BatchV1Api, CoreV1Api, KubeConfig } from '@kubernetes/client-node';
import { sharedDocker } from './docker-shared.ts';
import { CLUSTER_START_MS, givenKubeconfig, runningCluster, startCluster } from './kubernetes-cluster.ts';
import { IMAGE_MAKE_MS, isLoadable, loadImage, productImage } from './kubernetes-image.ts';
import { SharedPart } from './shared-part.ts';

/**
 * Environment variable with a product image that the cluster of `KUBECONFIG` has or can pull. It is needed
 * when no image can be loaded into the node.
 */
const GIVEN_IMAGE = 'ROOKERY_TEST_IMAGE';
/** Timeout of `beforeAll` in the first test file that needs a namespace or the image. */
export const KUBERNETES_START_MS = CLUSTER_START_MS + IMAGE_MAKE_MS;
const NAMESPACE_END_MS = 120_000;
const LOOK_MS = 100;

/** The cluster of `KUBECONFIG`, else one that runs at the default place, else a new one for this run. */
const clusters = new SharedPart('kubernetes', async () => {
  const nothing = async () => undefined;
  const given = givenKubeconfig();
  if (given !== null) return { facts: { kubeconfig: given }, stop: nothing };
  const running = runningCluster();
  if (running !== null) return { facts: { kubeconfig: `${running}/kubeconfig` }, stop: nothing };
  const { directory, stop } = await startCluster((await sharedDocker()).host);
  return { facts: { kubeconfig: `${directory}/kubeconfig` }, stop };
});

const images = new SharedPart('kubernetes image', async () => {
  const stop = async () => undefined;
  const given = process.env[GIVEN_IMAGE];
  if (given !== undefined && given !== '') return { facts: { name: given }, stop };
  const directory = dirname((await clusters.ask()).kubeconfig);
  if (!isLoadable(directory))
    throw new Error(`no image can be brought into this cluster: name one with ${GIVEN_IMAGE}`);
  const { name, file } = await productImage((await sharedDocker()).host);
  await loadImage(directory, file);
  return { facts: { name }, stop };
});

/**
 * Returns the product's image, which the cluster has. Call it in `beforeAll` with the timeout
 * `KUBERNETES_START_MS`.
 */
export async function kubernetesImage(): Promise<string> {
  return (await images.ask()).name;
}

/** A namespace for one test file. */
export interface TestNamespace extends AsyncDisposable {
  /** Path of the administrator's kubeconfig for the cluster. */
  readonly kubeconfig: string;
  readonly name: string;
  /** Configuration for clients of other kinds: `config.makeApiClient(…)`. */
  readonly config: KubeConfig;
  readonly core: CoreV1Api;
  readonly apps: AppsV1Api;
  readonly batch: BatchV1Api;
  readonly autoscaling: AutoscalingV2Api;
  /** Removes the namespace with everything in it and waits until the removal is complete. */
  close(): Promise<void>;
}

/**
 * Creates a namespace. Call it in `beforeAll` with the timeout `KUBERNETES_START_MS`, and `close` it in
 * `afterAll`.
 */
export async function kubernetesNamespace(): Promise<TestNamespace> {
  const { kubeconfig } = await clusters.ask();
  const config = new KubeConfig();
  config.loadFromFile(kubeconfig);
  const core = config.makeApiClient(CoreV1Api);
  const name = `rookery-test-${randomBytes(4).toString('hex')}`;
  await core.createNamespace({ body: { metadata: { name } } });
  const close = () => removeNamespace(core, name);
  return {
    kubeconfig,
    name,
    config,
    core,
    apps: config.makeApiClient(AppsV1Api),
    batch: config.makeApiClient(BatchV1Api),
    autoscaling: config.makeApiClient(AutoscalingV2Api),
    close,
    [Symbol.asyncDispose]: close,
  };
}

/**
 * Removes a namespace and its pods without grace. Controllers cannot create pods in a terminating namespace.
 */
async function removeNamespace(core: CoreV1Api, name: string): Promise<void> {
  const giveUpAt = Date.now() + NAMESPACE_END_MS;
  await core.deleteNamespace({ name }).catch(ignoreAbsent);
  for (;;) {
    await core.deleteCollectionNamespacedPod({ namespace: name, gracePeriodSeconds: 0 }).catch(ignoreAbsent);
    const isThere = await core.readNamespace({ name }).then(() => true, ignoreAbsent);
    if (isThere !== true) return;
    if (Date.now() > giveUpAt) throw new Error(`the namespace ${name} was not gone within ${NAMESPACE_END_MS} ms`);
    await delay(LOOK_MS);
  }
}

function ignoreAbsent(error: unknown): void {
  if ((error as { readonly code?: unknown }).code !== 404) throw error;
}

/** Global set-up of Vitest, which calls it once for each project. */
export async function setup(): Promise<void> {
  await clusters.setup();
  await images.setup();
}

export async function teardown(): Promise<void> {
  await images.teardown();
  await clusters.teardown();
}
