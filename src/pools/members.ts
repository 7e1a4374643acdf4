import type { PoolPod } from '../sandbox/pools.ts';

/** What the cluster counts as the pods of a pool. */
export function members(pods: readonly PoolPod[]): PoolPod[] {
  return pods.filter(({ isMember, state }) => isMember && state !== 'ending' && state !== 'failed');
}

export function isFree({ instanceId }: PoolPod): boolean {
  return instanceId === null;
}

/** Those that should run by now: pending for so long that somebody is to be told. */
export function isOverdue(pod: PoolPod, thresholdSeconds: number, nowMs: number): boolean {
  return isPending(pod) && overdueAtMs(pod, thresholdSeconds) <= nowMs;
}

export function isPending(pod: PoolPod): boolean {
  return pod.isMember && pod.state === 'pending' && isFree(pod);
}

export function overdueAtMs({ createdAtMs }: PoolPod, thresholdSeconds: number): number {
  return createdAtMs + thresholdSeconds * 1000;
}
