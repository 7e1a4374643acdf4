import { connect } from 'node:net';
import type { V1Pod } from '@kubernetes/client-node';
import type { Environment } from '../../core/environment.ts';
import { messageOf } from '../../core/error.ts';
import { KubernetesApi, statusOf } from './cluster.ts';
import { LABEL_INSTALLATION } from './labels.ts';
import { MANAGER_PORT } from './manager.ts';
import type { PodSettings } from './pod-settings.ts';
import { podTemplate, resourcesOf } from './pod-template.ts';
import { setPart } from './pod-volumes.ts';
import { missingRights } from './rights.ts';

export interface DiagnosisOptions {
  readonly kubeconfig: string | null;
  readonly namespace: string | null;
  /** Value of the setting `kubernetes.secret`. */
  readonly secret: string | null;
  readonly image: string;
  readonly pod: PodSettings;
  readonly environment: Environment;
}

/** Facts about a cluster, found without a change to it. */
export interface Diagnosis {
  readonly server: string;
  readonly namespace: string;
  /** Version of Kubernetes, or the reason why the cluster cannot be used. */
  readonly version: string | { readonly problem: string };
  /** Rights that the service lacks, such as `create pods`, each with its consequence. */
  readonly missingRights: readonly { readonly right: string; readonly without: string }[];
  /**
   * Reason why the API server would refuse an instance's pod: a missing namespace, a policy, a quota. Null:
   * it would accept the pod.
   */
  readonly refusal: string | null;
  /** Result of a connection to a running pod's address; null: no pod runs. */
  readonly reachable: { readonly address: string; readonly problem: string | null } | null;
}

const DIAL_TIMEOUT_MS = 3000;
const ASK_TIMEOUT_MS = 5000;
const RIGHTS_TIMEOUT_MS = 10_000;

/** Examines the configured cluster. Fails with `failed_precondition` when no cluster is configured. */
export async function diagnose({ image, pod, secret, ...place }: DiagnosisOptions): Promise<Diagnosis> {
  const cluster = KubernetesApi.open(place);
  const { server, namespace } = cluster;
  try {
    const version = await versionOf(cluster);
    if (typeof version !== 'string') {
      return { server, namespace, version, missingRights: [], refusal: null, reachable: null };
    }
    const [lacking, refusal, reachable] = await Promise.all([
      missingRights(cluster, secret, RIGHTS_TIMEOUT_MS),
      refusalOf(cluster, image, pod),
      reachableOf(cluster),
    ]);
    const named = lacking.map(({ verb, resource, without }) => ({ right: `${verb} ${resource}`, without }));
    return { server, namespace, version, missingRights: named, refusal, reachable };
  } finally {
    cluster.close();
  }
}

async function versionOf(cluster: KubernetesApi): Promise<Diagnosis['version']> {
  try {
    const asked = { path: '/version', timeoutMs: ASK_TIMEOUT_MS };
    return (await cluster.request<{ gitVersion: string }>('tell its version', asked)).gitVersion;
  } catch (error) {
    return { problem: messageOf(error) };
  }
}

/**
 * Sends an instance's pod as a dry run. The API server answers as it would for a real pod, and creates none.
 */
async function refusalOf(cluster: KubernetesApi, image: string, pod: PodSettings): Promise<string | null> {
  const { metadata, spec } = podTemplate({
    installationId: '00000000',
    secretName: 'rookery-00000000',
    labels: {},
    image,
    ourImage: image,
    mode: 'ours',
    resources: resourcesOf({ cpuMillis: 100, memoryMb: 128 }),
    restartPolicy: 'Never',
    ...setPart(pod),
  });
  const body = { apiVersion: 'v1', kind: 'Pod', metadata: { ...metadata, generateName: 'rookery-doctor-' }, spec };
  const path = `/api/v1/namespaces/${cluster.namespace}/pods`;
  try {
    await cluster.request('take a pod on trial', { method: 'POST', path, query: { dryRun: 'All' }, body });
    return null;
  } catch (error) {
    if (statusOf(error) === 404) return `there is no namespace ${cluster.namespace}`;
    return messageOf(error);
  }
}

async function reachableOf(cluster: KubernetesApi): Promise<Diagnosis['reachable']> {
  const query = { labelSelector: LABEL_INSTALLATION, fieldSelector: 'status.phase=Running', limit: 1 };
  const path = `/api/v1/namespaces/${cluster.namespace}/pods`;
  // `missingRights` already reports an account that may not list pods.
  const list = await cluster.request<{ items: V1Pod[] }>('list pods', { path, query }).catch(() => ({ items: [] }));
  const address = list.items[0]?.status?.podIP;
  if (address === undefined) return null;
  return { address, problem: await dialProblem(address) };
}

function dialProblem(host: string): Promise<string | null> {
  return new Promise(resolve => {
    const socket = connect({ host, port: MANAGER_PORT, timeout: DIAL_TIMEOUT_MS });
    const end = (problem: string | null) => {
      socket.destroy();
      resolve(problem);
    };
    socket.once('connect', () => end(null));
    socket.once('timeout', () => end(`nothing answered within ${DIAL_TIMEOUT_MS / 1000} s`));
    socket.once('error', error => end(messageOf(error)));
  });
}
