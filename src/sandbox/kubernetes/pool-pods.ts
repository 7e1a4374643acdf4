import type { V1ContainerStatus, V1Pod } from '@kubernetes/client-node';
import type { PoolPod } from '../pools.ts';
import {
  ANNOTATION_RETURNED_AT,
  ANNOTATION_TEMPLATE,
  LABEL_INSTANCE,
  LABEL_MEMBER,
  LABEL_NODE,
  LABEL_RETIRED,
} from './labels.ts';

/** Reasons for a container's wait that are normal. */
const USUAL: ReadonlySet<string> = new Set(['ContainerCreating', 'PodInitializing', '']);

/** Reasons that persist until the pool or the cluster is changed. */
const HOPELESS: ReadonlySet<string> = new Set([
  ...['ErrImagePull', 'ImagePullBackOff', 'InvalidImageName', 'ErrImageNeverPull', 'ImageInspectError'],
  ...['CreateContainerConfigError', 'CreateContainerError', 'RunContainerError', 'CrashLoopBackOff'],
]);

interface Trouble {
  readonly text: string;
  readonly isHopeless: boolean;
}

const NO_TROUBLE: Trouble = { text: '', isHopeless: false };

/**
 * Converts a pod of a pool for the pool controller. `template` is the current template hash of its
 * ReplicaSet.
 */
export function poolPodOf(pod: V1Pod, template: string | null): PoolPod {
  const { metadata = {} } = pod;
  const { labels = {}, annotations = {} } = metadata;
  const trouble = troubleOf(pod);
  return {
    name: metadata.name ?? '',
    uid: metadata.uid ?? '',
    version: metadata.resourceVersion ?? '',
    isMember: labels[LABEL_MEMBER] === 'true',
    isRetired: labels[LABEL_RETIRED] === 'true',
    instanceId: labels[LABEL_INSTANCE] ?? null,
    state: stateOf(pod),
    isReady: isReady(pod),
    problem: trouble.text,
    isHopeless: trouble.isHopeless,
    createdAtMs: timeOf(metadata.creationTimestamp),
    restsSinceMs: Math.max(readySinceMs(pod), timeOf(annotations[ANNOTATION_RETURNED_AT])),
    isUsed: annotations[ANNOTATION_RETURNED_AT] !== undefined,
    isUpToDate: template === null || annotations[ANNOTATION_TEMPLATE] === template,
  };
}

/** Returns true if an instance can claim this pod. */
export function isFree(pod: V1Pod): boolean {
  const labels = pod.metadata?.labels ?? {};
  return (
    labels[LABEL_MEMBER] === 'true' &&
    labels[LABEL_RETIRED] !== 'true' &&
    labels[LABEL_INSTANCE] === undefined &&
    stateOf(pod) === 'ready'
  );
}

/** Returns the id of the replica that owns the pod's instance, or undefined. */
export function holderOf(pod: V1Pod): string | undefined {
  return pod.metadata?.labels?.[LABEL_NODE];
}

/**
 * Returns the state of a pod. A restarted container has lost its key and counts as broken, whatever state it
 * reports.
 */
export function stateOf({ metadata, status = {} }: V1Pod): PoolPod['state'] {
  if (metadata?.deletionTimestamp !== undefined) return 'ending';
  if (status?.phase === 'Failed' || status?.phase === 'Succeeded') return 'failed';
  if (status?.containerStatuses?.some(container => container.restartCount > 0)) return 'broken';
  return isReady({ status }) ? 'ready' : 'pending';
}

function isReady({ status }: Pick<V1Pod, 'status'>): boolean {
  return conditionOf(status, 'Ready')?.status === 'True';
}

/** Returns the reason why a pod does not run, in the words of the cluster. */
function troubleOf({ status }: V1Pod): Trouble {
  const containers = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])];
  for (const container of containers) {
    const trouble = troubleOfContainer(container);
    if (trouble !== undefined) return trouble;
  }
  if (status?.phase === 'Failed')
    return { text: sentence(status.reason ?? 'Failed', status.message), isHopeless: false };
  const scheduled = conditionOf(status, 'PodScheduled');
  if (scheduled?.status === 'False')
    return { text: sentence(scheduled.reason ?? 'Unschedulable', scheduled.message), isHopeless: false };
  return NO_TROUBLE;
}

function troubleOfContainer({ name, state, lastState }: V1ContainerStatus): Trouble | undefined {
  const waiting = state?.waiting;
  const reason = waiting?.reason ?? '';
  if (waiting !== undefined && !USUAL.has(reason)) {
    return { text: sentence(reason, waiting.message), isHopeless: HOPELESS.has(reason) };
  }
  const ended = state?.terminated ?? (waiting === undefined ? undefined : lastState?.terminated);
  if (ended === undefined || ended.exitCode === 0) return undefined;
  return {
    text: sentence(ended.reason ?? 'Error', `the container ${name} ended with exit code ${ended.exitCode}`),
    isHopeless: false,
  };
}

function conditionOf(status: V1Pod['status'], type: string) {
  return status?.conditions?.find(condition => condition.type === type);
}

function readySinceMs({ status }: V1Pod): number {
  return timeOf(conditionOf(status, 'Ready')?.lastTransitionTime);
}

function sentence(reason: string, message: string | undefined): string {
  return message === undefined || message === '' ? reason : `${reason}: ${message}`;
}

/**
 * Converts a time of the API to ms; 0 when absent. The API writes texts, although the client's types say
 * dates.
 */
function timeOf(time: Date | string | undefined): number {
  return time === undefined ? 0 : new Date(time).getTime();
}
