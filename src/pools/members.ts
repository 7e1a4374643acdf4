import type { PoolPod } from '../sandbox/pools.ts';

/** Returns the pods that the cluster counts for a pool. */
export function members(pods: readonly PoolPod[]): PoolPod[] {
  return pods.filter(({ isMember, state }) => isMember && state !== 'ending' && state !== 'failed');
}

export function isFree({ instanceId }: PoolPod): boolean {
  return instanceId === null;
}

/** Returns true if a pod has been pending for longer than the threshold. */
export function isOverdue(pod: PoolPod, thresholdSeconds: number, nowMs: number): boolean {
  return isPending(pod) && overdueAtMs(pod, thresholdSeconds) <= nowMs;
}

export function isPending(pod: PoolPod): boolean {
  return pod.isMember && pod.state === 'pending' && isFree(pod);
}

export function overdueAtMs({ createdAtMs }: PoolPod, thresholdSeconds: number): number {
  return createdAtMs + thresholdSeconds * 1000;
}
