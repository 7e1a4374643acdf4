import type { V1Job, V1Pod } from '@kubernetes/client-node';
import { failedPrecondition } from '../../core/error.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import { type KubernetesApi, statusOf } from './cluster.ts';
import type { PodTemplate } from './pod-template.ts';
import type { Watched } from './watched.ts';

/** Time after which Kubernetes deletes a finished Job, in case its installation no longer exists. */
const KEEP_SECONDS = 86_400;
/**
 * Name that the Job controller gives a pod: the Job's name and five characters. A Job is named like an
 * instance's own pod.
 */
const POD_NAME = /^(rookery-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[a-z0-9]{5}$/;

/** Returns the name of the `batch/v1` Job that owns a pod of this name, or null. */
export function jobOfPod(podName: string): string | null {
  return POD_NAME.exec(podName)?.[1] ?? null;
}

/**
 * Creates a Job with a single pod that never runs again. Returns the pod, which may not run yet. Fails as
 * `KubernetesApi.request` does. If no pod appears before `signal` aborts, fails with the message of the
 * controller. Removes the Job on failure.
 */
export async function makeJob(
  cluster: KubernetesApi,
  pods: Watched<V1Pod>,
  name: string,
  { metadata, spec }: PodTemplate,
  signal: AbortSignal,
): Promise<V1Pod> {
  const body = {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: { ...metadata, name },
    spec: {
      completions: 1,
      parallelism: 1,
      // Kubernetes must not run a command again; this service decides about retries.
      backoffLimit: 0,
      ttlSecondsAfterFinished: KEEP_SECONDS,
      template: { metadata, spec },
    },
  };
  try {
    // Without the signal: an aborted request could leave an unknown Job, which would run.
    await cluster.request<V1Job>('make a job', { method: 'POST', path: pathOf(cluster), body });
  } catch (error) {
    // The Job may exist: its answer may be lost, or a resent request failed because it found its own Job.
    await removeJob(cluster, name).catch(() => undefined);
    throw error;
  }
  try {
    return await firstPod(pods, name, signal);
  } catch {
    const why = await whyNoPod(cluster, name);
    await removeJob(cluster, name);
    throw failedPrecondition(`its Job made no pod in time: ${why}`);
  }
}

/** Deletes the Job; Kubernetes then deletes its pod. Succeeds when the Job does not exist. */
export async function removeJob(cluster: KubernetesApi, name: string): Promise<void> {
  const query = { propagationPolicy: 'Background' };
  try {
    await cluster.request('delete a job', { method: 'DELETE', path: `${pathOf(cluster)}/${name}`, query });
  } catch (error) {
    if (statusOf(error) !== 404) throw error;
  }
}

function pathOf(cluster: KubernetesApi): string {
  return `/apis/batch/v1/namespaces/${cluster.namespace}/jobs`;
}

function firstPod(pods: Watched<V1Pod>, job: string, signal: AbortSignal): Promise<V1Pod> {
  return new Promise((resolve, reject) => {
    const check = (name: string) => {
      const pod = jobOfPod(name) === job ? pods.get(name) : undefined;
      if (pod !== undefined) settle(() => resolve(pod));
    };
    const unsubscribe = pods.subscribe(check);
    const release = onAbort(signal, () => settle(() => reject(signal.reason)));
    const settle = (end: () => void) => {
      unsubscribe();
      release();
      end();
    };
    for (const pod of pods.all()) check(pod.metadata?.name ?? '');
  });
}

/** Returns the controller's latest event, which names the reason, such as a quota or a policy. */
async function whyNoPod(cluster: KubernetesApi, name: string): Promise<string> {
  const path = `/api/v1/namespaces/${cluster.namespace}/events`;
  const query = { fieldSelector: `involvedObject.kind=Job,involvedObject.name=${name}`, limit: 10 };
  const events = await cluster
    .request<{ items: { message?: string }[] }>('list events', { path, query })
    .catch(() => ({ items: [] }));
  return events.items.at(-1)?.message ?? 'the Job controller reported no event';
}
