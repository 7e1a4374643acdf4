import type { PoolPod, PoolSet } from '../sandbox/pools.ts';
import type { Action } from './actions.ts';
import { isFree, members } from './members.ts';

/**
 * How a pool comes to keep fewer pods without the end of one that holds an instance, or is just being given one.
 *
 * The cluster's controller of the pool chooses itself which pods end, from what it has seen, which may be old: a pod that was claimed a moment ago
 * is a free one to it. So the ones that are to go are retired before: nobody can claim them any more, and they cost the least. The number is lowered
 * only when that controller says that it has seen them all retired (`inService`), and only by as many. It would end pods that are not ready before
 * all others: so each that it has seen not to be ready must be one of the retired, too. And it must have no pod to make, which
 * would be one more that is not ready.
 */
export function lowered(set: PoolSet, pods: readonly PoolPod[], target: number, alsoStarting: boolean): Action[] {
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

/** The least useful first: those that do not run, then old ones, then those that rest longest. */
function byUse(a: PoolPod, b: PoolPod): number {
  return (
    Number(a.isReady) - Number(b.isReady) ||
    Number(a.isUpToDate) - Number(b.isUpToDate) ||
    a.restsSinceMs - b.restsSinceMs
  );
}
