import { dirname } from 'node:path';
import { CoreV1Api, KubeConfig } from '@kubernetes/client-node';
import { KubernetesApi } from '../../src/sandbox/kubernetes/cluster.ts';
import { DockerDaemon, whyNoDocker } from '../../test/parts/docker.ts';
import { givenKubeconfig, runningCluster } from '../../test/parts/kubernetes-cluster.ts';
import { isLoadable, loadImage, productImage } from '../../test/parts/kubernetes-image.ts';
import { type Bed, type BenchRow, NotHere } from '../bed.ts';
import { registerFunction, send } from '../functions.ts';
import { atMost, delay, type Measurement, percentile } from '../measure.ts';
import { Rookery } from '../rookery.ts';

const BODY = JSON.stringify({ name: 'Ada' });
/** Python version in the product's image. */
const PYTHON = '3.11';
const SIZE = { cpu: 300, memory: 128 };
const POOL = 'bench';
const POOL_SIZE = 4;
const ROUND_TRIPS = 100;
const READY_MS = 300_000;
/** Time in which a used pod may become free again, in milliseconds. */
const RETURN_MS = 30_000;

/**
 * Measures the first call of a function without instances, in a pod of a pool and in a new pod.
 * It also measures the pods that the cluster starts per second. It uses the cluster of `KUBECONFIG`, or a
 * running test cluster.
 */
export const kubernetes: BenchRow = {
  name: 'kubernetes',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const running = runningCluster();
    const kubeconfig = givenKubeconfig() ?? (running === null ? null : `${running}/kubeconfig`);
    if (kubeconfig === null) throw new NotHere('KUBECONFIG is not set, and no cluster runs at the usual place');
    const image = await imageFor(kubeconfig);
    const config = new KubeConfig();
    config.loadFromFile(kubeconfig);
    const core = config.makeApiClient(CoreV1Api);
    const name = `rookery-bench-${process.pid}`;
    await core.createNamespace({ body: { metadata: { name } } });
    let rookery: Rookery | undefined;
    try {
      const settings = [
        ...['defaultExecutor=kubernetes', `kubernetes.kubeconfig=${kubeconfig}`],
        ...[`kubernetes.namespace=${name}`, `kubernetes.image=${image}`],
      ];
      rookery = await Rookery.start(bed.python, { settings, nodeArgs: bed.nodeArgs });
      const { reads, patches } = await roundTripsOf(kubeconfig, name);
      const cold = await firstResults(rookery, 'own', bed.isQuick ? 3 : 10, 0);
      const podsPerSecond = await makePool(rookery);
      const claimed = await firstResults(rookery, 'claimed', bed.isQuick ? 10 : 40, RETURN_MS);
      bed.raw.kubernetes = { reads, patches, cold, claimed, podsPerSecond };
      const roundTrip = percentile(patches, 0.5);
      const beyond = claimed.map(tookMs => tookMs - roundTrip);
      return [
        {
          what: 'claim → first result, beyond a round trip to the API server (the patch of a pod), p50',
          value: percentile(beyond, 0.5),
          unit: 'ms',
          target: atMost('value', 40),
        },
        { what: 'claim → first result, p99', value: percentile(claimed, 0.99), unit: 'ms' },
        { what: 'a round trip to the API server: the patch of a pod, p50', value: roundTrip, unit: 'ms' },
        { what: 'a round trip to the API server: a read, p50', value: percentile(reads, 0.5), unit: 'ms' },
        {
          what: 'claim → first result, p50, against a pod of its own',
          value: percentile(claimed, 0.5),
          unit: 'ms',
          against: { what: 'a pod that is made for the call', value: percentile(cold, 0.5) },
        },
        { what: 'pods of a pool that become ready', value: podsPerSecond, unit: '/s' },
      ];
    } finally {
      await rookery?.remove();
      await core.deleteNamespace({ name });
    }
  },
};

async function imageFor(kubeconfig: string): Promise<string> {
  const given = process.env.ROOKERY_TEST_IMAGE;
  if (given !== undefined && given !== '') return given;
  const directory = dirname(kubeconfig);
  if (!isLoadable(directory))
    throw new NotHere('no image can be brought into this cluster: name one with ROOKERY_TEST_IMAGE');
  const missing = whyNoDocker();
  if (missing !== null) throw new NotHere(missing);
  await using daemon = await DockerDaemon.start();
  const { name, file } = await productImage(daemon.host);
  await loadImage(directory, file);
  return name;
}

/** Measures two round trips to the API server: the patch of a pod, which each claim needs, and a read. */
async function roundTripsOf(kubeconfig: string, namespace: string) {
  const cluster = await KubernetesApi.open({ kubeconfig, namespace, environment: {} });
  const pods = `/api/v1/namespaces/${namespace}/pods`;
  const spec = { schedulerName: 'nobody', containers: [{ name: 'a', image: 'none' }] };
  const body = { metadata: { name: 'patched' }, spec };
  await cluster.request('make a pod', { method: 'POST', path: pods, body });
  const timed = async (ask: (index: number) => Promise<unknown>): Promise<readonly number[]> => {
    const tookMs: number[] = [];
    for (let index = 0; index < ROUND_TRIPS; index += 1) {
      const startedAt = performance.now();
      await ask(index);
      tookMs.push(performance.now() - startedAt);
    }
    return tookMs.slice(ROUND_TRIPS / 10);
  };
  const path = `${pods}/patched`;
  const label = (index: number) => ({ metadata: { labels: { index: `${index}` } } });
  try {
    return {
      reads: await timed(() => cluster.request('show a pod', { path })),
      patches: await timed(index =>
        cluster.request('label a pod', { method: 'PATCH', patch: 'merge', path, body: label(index) }),
      ),
    };
  } finally {
    await cluster.request('remove a pod', { method: 'DELETE', path, body: { gracePeriodSeconds: 0 } });
    cluster.close();
  }
}

/** Creates a pool. Returns the pods per second that became ready, from the create to the last pod. */
async function makePool(rookery: Rookery): Promise<number> {
  const amounts = { cpu: `${SIZE.cpu}m`, memory: `${SIZE.memory}Mi` };
  const pool = { id: POOL, size: POOL_SIZE, reuse: true, resources: { requests: amounts, limits: amounts } };
  const startedAt = performance.now();
  await send(rookery.served.metaUrl, '/serverless/v1/podpools', { pools: [pool] });
  await untilReady(rookery, READY_MS);
  return (POOL_SIZE * 1000) / (performance.now() - startedAt);
}

async function untilReady(rookery: Rookery, timeoutMs: number): Promise<void> {
  const giveUpAt = performance.now() + timeoutMs;
  for (;;) {
    const answer = await fetch(`${rookery.served.metaUrl}/serverless/v1/podpools?id=${POOL}`);
    const text = await answer.text();
    if (new RegExp(`"ready_count":${POOL_SIZE}\\b`).test(text)) return;
    if (performance.now() > giveUpAt) throw new Error(`the pool did not become ready: ${text}`);
    await delay(20);
  }
}

/**
 * Measures first calls of new functions, one at a time. If `restMs` is above 0, it pauses 1.5 s before each
 * call so that pods become free.
 */
async function firstResults(rookery: Rookery, kind: string, count: number, restMs: number): Promise<readonly number[]> {
  const tookMs: number[] = [];
  for (let index = 0; index < count + 1; index += 1) {
    const scale = { ...SIZE, autoScaleConfig: { scaleDownTime: 1000 } };
    const path = await registerFunction(rookery, PYTHON, `${kind}-${index}`, scale);
    if (restMs > 0) await delay(1500);
    const startedAt = performance.now();
    const response = await fetch(rookery.url + path, { method: 'POST', body: BODY });
    const text = await response.text();
    tookMs.push(performance.now() - startedAt);
    if (response.status !== 200) throw new Error(`a first call answered ${response.status}: ${text}`);
  }
  return tookMs.slice(1);
}
