import { randomBytes } from 'node:crypto';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { AppsV1Api, AutoscalingV2Api, BatchV1Api, CoreV1Api, KubeConfig } from '@kubernetes/client-node';
import { sharedDocker } from './docker-shared.ts';
import { CLUSTER_START_MS, givenKubeconfig, runningCluster, startCluster } from './kubernetes-cluster.ts';
import { IMAGE_MAKE_MS, isLoadable, loadImage, productImage } from './kubernetes-image.ts';
import { SharedPart } from './shared-part.ts';

/** An image of the product that the cluster of `KUBECONFIG` has or can pull, where none can be brought into its node. */
const GIVEN_IMAGE = 'ROOKERY_TEST_IMAGE';
/** For `beforeAll`, of the first test file that asks for a namespace, or for the image. */
export const KUBERNETES_START_MS = CLUSTER_START_MS + IMAGE_MAKE_MS;
const NAMESPACE_END_MS = 120_000;
const LOOK_MS = 100;

/** That of `KUBECONFIG`, else one that runs at the usual place, else one of this run's own. */
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

/** The product's image, which the cluster has. In `beforeAll`, with a timeout of `KUBERNETES_START_MS`. */
export async function kubernetesImage(): Promise<string> {
  return (await images.ask()).name;
}

/** A namespace of a test file's own. */
export interface TestNamespace extends AsyncDisposable {
  /** The file that leads to the cluster, as its administrator. */
  readonly kubeconfig: string;
  readonly name: string;
  /** For clients of other kinds: `config.makeApiClient(…)`. */
  readonly config: KubeConfig;
  readonly core: CoreV1Api;
  readonly apps: AppsV1Api;
  readonly batch: BatchV1Api;
  readonly autoscaling: AutoscalingV2Api;
  /** Removes it with everything in it, and waits until it is gone. */
  close(): Promise<void>;
}

/** In `beforeAll`, with a timeout of `KUBERNETES_START_MS`; `close` it in `afterAll`. */
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

/** Pods end without grace: no controller can make another one while the namespace is terminating. */
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

/** Vitest's global set-up, called once for each project. */
export async function setup(): Promise<void> {
  await clusters.setup();
  await images.setup();
}

export async function teardown(): Promise<void> {
  await images.teardown();
  await clusters.teardown();
}
