import type { V1Job, V1Pod } from '@kubernetes/client-node';
import { failedPrecondition } from '../../core/error.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import { type Cluster, statusOf } from './cluster.ts';
import type { PodTemplate } from './pod-template.ts';
import type { Watched } from './watched.ts';

/** For one that is over and that nobody removed, because the installation that made it is gone. */
const KEEP_SECONDS = 86_400;
/** As the controller of Jobs calls its pods: the name of the Job, which is that of a pod of an instance's own, and five characters. */
const POD_NAME = /^(rookery-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[a-z0-9]{5}$/;

/** The `batch/v1` Job that a pod of this name is of; null when it is none's. */
export function jobOfPod(podName: string): string | null {
  return POD_NAME.exec(podName)?.[1] ?? null;
}

/**
 * Makes a Job of one pod that is never run a second time, and returns its pod, which may not run yet. Fails as `Cluster.request`, with the words of the
 * controller when it made no pod before `signal` aborts; nothing is left then.
 */
export async function makeJob(
  cluster: Cluster,
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
      // A command that has begun is not begun again: whether it is tried once more is this service's to decide.
      backoffLimit: 0,
      ttlSecondsAfterFinished: KEEP_SECONDS,
      template: { metadata, spec },
    },
  };
  try {
    // Not with the signal: whether the Job has been made must be known, or it would be left, and run.
    await cluster.request<V1Job>('make a job', { method: 'POST', path: pathOf(cluster), body });
  } catch (error) {
    // It may have been made all the same: an answer can be lost, and a request that is sent again finds its own Job.
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

/** Its pod goes with it. Absent = success. */
export async function removeJob(cluster: Cluster, name: string): Promise<void> {
  const query = { propagationPolicy: 'Background' };
  try {
    await cluster.request('delete a job', { method: 'DELETE', path: `${pathOf(cluster)}/${name}`, query });
  } catch (error) {
    if (statusOf(error) !== 404) throw error;
  }
}

function pathOf(cluster: Cluster): string {
  return `/apis/batch/v1/namespaces/${cluster.namespace}/jobs`;
}

function firstPod(pods: Watched<V1Pod>, job: string, signal: AbortSignal): Promise<V1Pod> {
  return new Promise((resolve, reject) => {
    const look = (name: string) => {
      const pod = jobOfPod(name) === job ? pods.get(name) : undefined;
      if (pod !== undefined) settle(() => resolve(pod));
    };
    const unsubscribe = pods.subscribe(look);
    const release = onAbort(signal, () => settle(() => reject(signal.reason)));
    const settle = (end: () => void) => {
      unsubscribe();
      release();
      end();
    };
    for (const pod of pods.all()) look(pod.metadata?.name ?? '');
  });
}

/** A quota, a policy: the controller says it in an event. */
async function whyNoPod(cluster: Cluster, name: string): Promise<string> {
  const path = `/api/v1/namespaces/${cluster.namespace}/events`;
  const query = { fieldSelector: `involvedObject.kind=Job,involvedObject.name=${name}`, limit: 10 };
  const events = await cluster
    .request<{ items: { message?: string }[] }>('list events', { path, query })
    .catch(() => ({ items: [] }));
  return events.items.at(-1)?.message ?? 'the controller of Jobs says nothing';
}
