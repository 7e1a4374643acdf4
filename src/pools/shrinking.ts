import type { PoolPod, PoolSet } from '../sandbox/pools.ts';
import type { PoolAction } from './actions.ts';
import { isFree, members } from './members.ts';

/**
 * Returns the actions that shrink a pool without ending a pod that holds an instance or is being assigned
 * one.
 * The cluster's controller chooses which pods end, from a state that may be outdated: it may consider a pod
 * free that was claimed a moment ago. So the surplus pods are retired first. Retired pods cannot be claimed,
 * and the controller ends them first. The number is lowered only after the controller has seen them all as
 * retired (`inService`), and only by as many.
 * The controller would end pods that are not ready before all others. So each pod that it has seen as not
 * ready must be retired too. It must also have no pod to make, since a new pod is not ready either.
 */
export function lowered(set: PoolSet, pods: readonly PoolPod[], target: number, alsoStarting: boolean): PoolAction[] {
  const present = members(pods);
  const free = present.filter(pod => isFree(pod));
  const retired = free.filter(({ isRetired }) => isRetired);
  const surplus = Math.min(set.replicas, present.length) - target - retired.length;
  const candidates = free.filter(({ isRetired }) => !isRetired).sort(byUse);
  const starting = alsoStarting ? candidates.filter(({ isReady }) => !isReady).length : 0;
  const victims = candidates.slice(0, Math.max(surplus, surplus > 0 ? starting : 0));
  if (victims.length > 0) return victims.map(pod => ({ do: 'retire', pod }));
  const { seen } = set;
  const to = Math.max(target, seen.inService);
  const unready = retired.filter(({ isReady }) => !isReady).length;
  const isComplete = seen.pods === present.length && (seen.pods === set.replicas || set.problem !== null);
  const isSeen = seen.isCurrent && isComplete && seen.pods - seen.ready <= unready;
  return isSeen && to < set.replicas ? [{ do: 'scale', from: set.replicas, to }] : [];
}

/**
 * Orders pods by use, least useful first: those that do not run, then outdated ones, then those that rest
 * longest.
 */
function byUse(a: PoolPod, b: PoolPod): number {
  return (
    Number(a.isReady) - Number(b.isReady) ||
    Number(a.isUpToDate) - Number(b.isUpToDate) ||
    a.restsSinceMs - b.restsSinceMs
  );
}
