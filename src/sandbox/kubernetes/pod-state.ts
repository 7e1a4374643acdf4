import { constants } from 'node:os';
import type { V1ContainerStatus, V1Pod } from '@kubernetes/client-node';
import type { ExitResult } from '../driver.ts';
import { MAIN_CONTAINER } from './pod-template.ts';

/** What a pod is doing, as far as its instance is concerned. */
export type PodState =
  /** `why`: what it waits for, in the words of Kubernetes; `''` when nothing is said. `isHopeless`: it will not come to anything. */
  | { readonly state: 'starting'; readonly why: string; readonly isHopeless: boolean }
  | { readonly state: 'running' }
  /** Its machine is lost: nobody can tell whether it runs. */
  | { readonly state: 'unknown'; readonly why: string }
  | { readonly state: 'ended'; readonly exit: ExitResult };

/** Kubernetes tries these again, but they do not come right by themselves in the time of a start. */
const HOPELESS = new Set([
  'ImagePullBackOff',
  'InvalidImageName',
  'ErrImageNeverPull',
  'ImageInspectError',
  'CreateContainerConfigError',
  'CreateContainerError',
  'RunContainerError',
]);
/** Waiting, and nothing is wrong. */
const USUAL = new Set(['ContainerCreating', 'PodInitializing']);
/** Kubernetes has one word for a pod that its node evicts, and others for those that are deleted for the same reason. */
const EVICTIONS = new Set(['EvictionByEvictionAPI', 'DeletionByTaintManager']);
/** How much later than announced a pod may end before its machine counts as lost. */
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
  // The node's own agent never says this of a container that runs: the cluster does when the node is silent.
  if (isLate || (main.ready && ready !== undefined && ready.status !== 'True' && ready.reason === undefined)) {
    return { state: 'unknown', why: `the node ${pod.spec?.nodeName ?? ''} of the pod does not answer` };
  }
  return { state: 'running' };
}

/** How it ended; of one that is no longer there, as it was last seen. */
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

/** Who ended it, when that was the cluster: `Evicted: The node was low on resource: memory.` */
function causeOf(pod: V1Pod | undefined): string | undefined {
  const { status = {}, metadata } = pod ?? {};
  // The end that this service has asked the node for is not the cluster's doing.
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

/** The id of the main container; another one means that it was restarted. */
export function containerIdOf(pod: V1Pod): string {
  return mainOf(pod)?.containerID ?? '';
}

/** Whether its node runs it, and it has an address. */
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
