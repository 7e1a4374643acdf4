import type { PoolBackend } from '../sandbox/pools.ts';
import { isFree, isOverdue, members } from './members.ts';

/** Number of a pool's pods in each state. */
export interface PodCounts {
  readonly pool: string;
  readonly free: number;
  readonly claimed: number;
  readonly starting: number;
  /** Starting pods that have been pending for longer than the pool's threshold. */
  readonly overdue: number;
}

export function countPods(backend: Pick<PoolBackend, 'ids' | 'view'>, nowMs: number): readonly PodCounts[] {
  return [...backend.ids()].map(pool => {
    const { set, pods } = backend.view(pool);
    const free = members(pods).filter(isFree);
    const threshold = set?.spec?.pod_pending_duration_threshold ?? Number.POSITIVE_INFINITY;
    return {
      pool,
      free: free.filter(({ state }) => state === 'ready').length,
      claimed: pods.filter(pod => !isFree(pod)).length,
      starting: free.filter(({ state }) => state !== 'ready').length,
      overdue: free.filter(pod => isOverdue(pod, threshold, nowMs)).length,
    };
  });
}
