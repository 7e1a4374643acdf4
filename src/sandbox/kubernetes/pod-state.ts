import { constants } from 'node:os';
import type { V1ContainerStatus, V1Pod } from '@kubernetes/client-node';
import type { ExitResult } from '../driver.ts';
import { MAIN_CONTAINER } from './pod-template.ts';

/** State of a pod from the point of view of its instance. */
export type PodState =
  /**
   * `why`: reason for the wait, in the words of Kubernetes; `''` when there is none. `isHopeless`: the start
   * cannot succeed.
   */
  | { readonly state: 'starting'; readonly why: string; readonly isHopeless: boolean }
  | { readonly state: 'running' }
  /** The pod's node does not answer, so its state is not known. */
  | { readonly state: 'unknown'; readonly why: string }
  | { readonly state: 'ended'; readonly exit: ExitResult };

/** Reasons that Kubernetes retries, but that do not resolve within the time of a start. */
const HOPELESS = new Set([
  'ImagePullBackOff',
  'InvalidImageName',
  'ErrImageNeverPull',
  'ImageInspectError',
  'CreateContainerConfigError',
  'CreateContainerError',
  'RunContainerError',
]);
/** Reasons for a wait that are normal. */
const USUAL = new Set(['ContainerCreating', 'PodInitializing']);
/** Reasons that count as an eviction. A pod that its node evicts has the reason `Evicted` itself. */
const EVICTIONS = new Set(['EvictionByEvictionAPI', 'DeletionByTaintManager']);
/** Delay of a pod's announced end after which its node counts as lost. */
const LATE_END_MS = 30_000;
const SIGNALS = new Map(Object.entries(constants.signals).map(([name, number]) => [number, name]));

export function stateOf(pod: V1Pod, nowMs = Date.now()): PodState {
  const { status = {}, metadata } = pod;
  const main = status.containerStatuses?.find(({ name }) => name === MAIN_CONTAINER);
  const isOver = status.phase === 'Failed' || status.phase === 'Succeeded';
  if (isOver || main?.state?.terminated !== undefined) return { state: 'ended', exit: exitOf(pod, main) };
  if (main?.state?.running === undefined) return startingState(pod);
  const endsBy = metadata?.deletionTimestamp;
  const isLate = endsBy !== undefined && nowMs - new Date(endsBy).getTime() > LATE_END_MS;
  const ready = status.conditions?.find(({ type }) => type === 'Ready');
  // The kubelet always gives a reason for a container that is not ready. Without a reason the cluster set the
  // condition, because the node is silent.
  if (isLate || (main.ready && ready !== undefined && ready.status !== 'True' && ready.reason === undefined)) {
    return { state: 'unknown', why: `the node ${pod.spec?.nodeName ?? ''} of the pod does not answer` };
  }
  return { state: 'running' };
}

/** Returns how a pod ended; for a removed pod, as it was last seen. */
export function exitOf(pod: V1Pod | undefined, main = mainOf(pod)): ExitResult {
  const terminated = main?.state?.terminated ?? main?.lastState?.terminated;
  const cause = causeOf(pod);
  if (terminated === undefined) {
    return { code: null, signal: null, oomKilled: false, atMs: Date.now(), ...(cause && { cause }) };
  }
  const { exitCode, reason, finishedAt } = terminated;
  const oomKilled = reason === 'OOMKilled';
  const signal = exitCode > 128 ? (SIGNALS.get(exitCode - 128) ?? null) : null;
  const atMs = finishedAt === undefined ? Number.NaN : new Date(finishedAt).getTime();
  return {
    code: signal === null ? exitCode : null,
    signal,
    oomKilled,
    atMs: Number.isFinite(atMs) && atMs > 0 ? atMs : Date.now(),
    ...(cause && { cause }),
  };
}

/**
 * Returns the cluster's reason for the end, or undefined.
 * Example: `Evicted: The node was low on resource: memory.`
 */
function causeOf(pod: V1Pod | undefined): string | undefined {
  const { status = {}, metadata } = pod ?? {};
  // `DeadlineExceeded` is the end that this service requested from the node.
  if (status.reason !== undefined && status.reason !== 'DeadlineExceeded') return words(status.reason, status.message);
  const disrupted = status.conditions?.find(({ type, status: is }) => type === 'DisruptionTarget' && is === 'True');
  if (disrupted?.reason !== undefined) {
    return words(EVICTIONS.has(disrupted.reason) ? 'Evicted' : disrupted.reason, disrupted.message);
  }
  const terminated = mainOf(pod)?.state?.terminated;
  if (terminated?.reason === 'StartError' || terminated?.reason === 'ContainerStatusUnknown') {
    return words(terminated.reason, terminated.message);
  }
  return metadata?.deletionTimestamp === undefined ? undefined : 'its pod was deleted';
}

/** Returns the id of the main container. A different id means that the container was restarted. */
export function containerIdOf(pod: V1Pod): string {
  return mainOf(pod)?.containerID ?? '';
}

/** Returns the pod's address, or `''` when it has none yet. */
export function addressOf(pod: V1Pod): string {
  return pod.status?.podIP ?? '';
}

function mainOf(pod: V1Pod | undefined): V1ContainerStatus | undefined {
  return pod?.status?.containerStatuses?.find(({ name }) => name === MAIN_CONTAINER);
}

function startingState({ status = {} }: V1Pod): PodState {
  const scheduled = status.conditions?.find(({ type }) => type === 'PodScheduled');
  if (scheduled?.status === 'False') {
    return { state: 'starting', why: words(scheduled.reason ?? 'Unschedulable', scheduled.message), isHopeless: false };
  }
  for (const container of [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])]) {
    const { waiting, terminated } = container.state ?? {};
    if (waiting?.reason !== undefined && !USUAL.has(waiting.reason)) {
      const why = words(waiting.reason, waiting.message);
      return { state: 'starting', why, isHopeless: HOPELESS.has(waiting.reason) };
    }
    if (terminated !== undefined && terminated.exitCode !== 0) {
      const why = `container ${container.name} ended: ${words(terminated.reason ?? 'Error', terminated.message)} (exit code ${terminated.exitCode})`;
      return { state: 'starting', why, isHopeless: false };
    }
  }
  return { state: 'starting', why: '', isHopeless: false };
}

function words(reason: string, message: string | undefined): string {
  const text = message?.trim() ?? '';
  return text === '' ? reason : `${reason}: ${text}`;
}
