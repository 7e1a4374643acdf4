import { POOL_STATUS, type Pool, type PoolSpec, type PoolStatus } from '../core/pool.ts';
import type { PoolPod, PoolSet, PoolView } from '../sandbox/pools.ts';
import type { Action } from './actions.ts';
import { isFree, isOverdue, isPending, members, overdueAtMs } from './members.ts';
import { lowered } from './shrinking.ts';

/** A pool at one moment. */
export interface Seen {
  /** Null: there is no record of it (any more). */
  readonly pool: Pool | null;
  readonly view: PoolView;
  readonly nowMs: number;
  /** Why it cannot be made, or null. */
  readonly problem: string | null;
  /** Making it may be tried (again). */
  readonly mayMake: boolean;
  /** Pods that break again and again are replaced ever more slowly. */
  readonly mayRepairAtMs: number;
}

export interface Plan {
  /** To be written first; when that is refused, nothing else is done. Null: there is no record. */
  readonly report: Omit<Pool, 'spec'> | null;
  readonly actions: readonly Action[];
  /** Nothing of a deleted pool is left. */
  readonly isGone: boolean;
  /** When it is to be looked at again, though nothing changes; infinite: then only. */
  readonly wakeAtMs: number;
  /** Pods that have been pending for longer than the pool's threshold. */
  readonly overdue: readonly PoolPod[];
}

/** Of `idle_recycle_time.scaled`, when it is 0. */
const SCALED_IDLE_MS = 60_000;
/** A pod that is on its way may be waited for. */
const STARTING_MS = 120_000;
const RECYCLE_LABELS = ['svc-idle-to-recycle', 'yr-idle-to-recycle'];
const NEVER = Number.POSITIVE_INFINITY;

/** What is to be done to a pool, and what its record says. Nothing but what it is given counts. */
export function decide(seen: Seen): Plan {
  const { pool, view } = seen;
  if (pool === null || pool.status === POOL_STATUS.deleting) return dissolve(pool, view);
  // What was asked for is acknowledged before it is begun.
  if (pool.status === POOL_STATUS.new) return acknowledge(seen, POOL_STATUS.creating, 'creating');
  if (pool.status === POOL_STATUS.updateRequested) return acknowledge(seen, POOL_STATUS.updating, 'updating');
  return keep(pool, seen);
}

/** Its free pods end, those that hold an instance do so with it. */
function dissolve(pool: Pool | null, view: PoolView): Plan {
  const { set, pods } = view;
  const held = pods.filter(({ instanceId }) => instanceId !== null).length;
  const msg = held === 0 ? 'deleting' : `deleting: ${held} pods hold instances`;
  const report = pool && { status: POOL_STATUS.deleting, msg, readyCount: pods.filter(isCounted).length };
  const rest = { report, wakeAtMs: NEVER, overdue: [], isGone: false };
  // While it keeps its pods, each that ends would be replaced.
  if (set !== null && !set.isEnding) return { ...rest, actions: [{ do: 'disband' }] };
  const actions = pods.filter(pod => isFree(pod) && pod.state !== 'ending').map(remove);
  return { ...rest, actions, isGone: set === null && pods.length === 0 };
}

function acknowledge({ view, nowMs }: Seen, status: PoolStatus, msg: string): Plan {
  const readyCount = view.pods.filter(isCounted).length;
  return { report: { status, msg, readyCount }, actions: [], isGone: false, wakeAtMs: nowMs, overdue: [] };
}

function keep(pool: Pool, seen: Seen): Plan {
  const { spec } = pool;
  const { view, nowMs, mayMake } = seen;
  const { set } = view;
  const threshold = spec.pod_pending_duration_threshold;
  const pending = view.pods.filter(isPending);
  const overdue = pending.filter(pod => isOverdue(pod, threshold, nowMs));
  const wakes = pending.map(pod => overdueAtMs(pod, threshold)).filter(atMs => atMs > nowMs);
  const isApplied = set !== null && !set.isEnding && set.isUpToDate && isSame(set.spec, spec);
  const actions: Action[] = [];
  let target = spec.size;
  if (!isApplied) {
    // One that is ending has to be gone before there can be another of its name.
    if (mayMake && !set?.isEnding) actions.push({ do: 'apply', replicas: spec.size });
  } else {
    const sized = sizeOf(spec, set, view.pods, nowMs);
    target = sized.replicas;
    wakes.push(...sized.wakes);
    const changes = target < set.replicas ? lowered(set, view.pods, target, !sized.isPatient) : [];
    if (target > set.replicas) changes.push({ do: 'scale', from: set.replicas, to: target });
    const renewed = renew(spec, seen, target < set.replicas);
    wakes.push(...renewed.wakes);
    actions.push(...changes, ...renewed.actions);
    if (set.isAutoscaled) actions.push({ do: 'keepAtLeast', replicas: heldMembers(view.pods) });
  }
  const isSettled = isApplied && set.seen.isCurrent && set.replicas <= target;
  const report = reportOf(pool, seen, { isSettled, overdue: overdue.length });
  return { report, actions, isGone: false, wakeAtMs: Math.min(NEVER, ...wakes), overdue };
}

/** How many pods a pool is to keep now: never fewer than hold an instance. */
function sizeOf(spec: PoolSpec, set: PoolSet, pods: readonly PoolPod[], nowMs: number) {
  const held = heldMembers(pods);
  const least = Math.max(spec.size, held);
  const as = (replicas: number) => ({ replicas, wakes: [] as number[], isPatient: false });
  if (set.isAutoscaled) return as(set.replicas);
  if (!spec.scalable || spec.max_size <= spec.size) return as(least);
  const most = Math.max(spec.max_size, held);
  if (set.replicas > most) return as(most);
  if (set.replicas <= least) return as(Math.max(set.replicas, spec.size));
  const { scaled } = spec.idle_recycle_time;
  if (scaled === -1) return as(set.replicas);
  const idleMs = scaled === 0 ? SCALED_IDLE_MS : scaled * 1000;
  const free = members(pods).filter(isFree);
  // A pod that never comes may be given up too.
  const leavesAtMs = (pod: PoolPod) =>
    pod.isReady ? pod.restsSinceMs + idleMs : pod.createdAtMs + Math.max(idleMs, STARTING_MS);
  const leaving = free.filter(pod => pod.isRetired || leavesAtMs(pod) <= nowMs).length;
  const wakes = free.map(leavesAtMs).filter(atMs => atMs > nowMs);
  const isStarting = free.some(pod => !pod.isReady && !pod.isRetired && leavesAtMs(pod) > nowMs);
  const leave = isStarting ? 0 : Math.min(leaving, set.replicas - least);
  return { replicas: set.replicas - leave, wakes, isPatient: true };
}

/** Pods that are replaced, or only cleared away. */
function renew(spec: PoolSpec, { view, nowMs, mayRepairAtMs }: Seen, isShrinking: boolean) {
  const actions: Action[] = [];
  const wakes: number[] = [];
  const recycleMs = recycleMsOf(spec);
  const present = members(view.pods);
  let mayMiss = Math.max(1, Math.ceil(spec.size / 4)) - present.filter(pod => !pod.isReady).length;
  for (const pod of view.pods) {
    if (!isFree(pod) || pod.state === 'ending') continue;
    if (pod.state === 'failed' || !pod.isMember) {
      actions.push(remove(pod));
    } else if (isShrinking) {
    } else if (pod.isRetired) {
      // It was to go, and then was needed again, or is the one too many that the cluster did not end.
      actions.push(remove(pod));
    } else if (pod.state === 'broken') {
      if (mayRepairAtMs <= nowMs) actions.push({ do: 'repair', pod });
      else wakes.push(mayRepairAtMs);
    } else if (pod.state === 'ready') {
      const goesAtMs = !pod.isUpToDate ? nowMs : pod.isUsed ? pod.restsSinceMs + recycleMs : NEVER;
      if (goesAtMs > nowMs) wakes.push(goesAtMs);
      else if (mayMiss-- > 0) actions.push(remove(pod));
    }
  }
  return { actions, wakes };
}

/** How long a pod that was used may rest before it is replaced. */
function recycleMsOf(spec: PoolSpec): number {
  const isFixed = spec.max_size <= spec.size && spec.horizontal_pod_autoscaler_spec === '';
  const label = RECYCLE_LABELS.map(name => spec.labels?.[name]).find(value => value !== undefined);
  if (isFixed && label !== undefined) return label === 'unlimited' ? NEVER : Number(label) * 1000;
  const { reserved } = spec.idle_recycle_time;
  return reserved > 0 ? reserved * 1000 : NEVER;
}

function reportOf(
  { spec, status }: Pool,
  { view, problem }: Seen,
  { isSettled, overdue }: { readonly isSettled: boolean; readonly overdue: number },
): Omit<Pool, 'spec'> {
  const { set } = view;
  const readyCount = view.pods.filter(isCounted).length;
  const wanted = set?.isAutoscaled ? Math.min(spec.size, set.replicas) : spec.size;
  const alert =
    overdue === 0 ? '' : `; pending for more than ${spec.pod_pending_duration_threshold} s: ${count(overdue, 'pod')}`;
  if (problem !== null) return { status: POOL_STATUS.failed, msg: problem, readyCount };
  if (isSettled && readyCount >= wanted) return { status: POOL_STATUS.running, msg: `Running${alert}`, readyCount };
  const troubled = members(view.pods).filter(pod => pod.problem !== '' && !pod.isReady);
  const hopeless = troubled.find(({ isHopeless }) => isHopeless)?.problem ?? set?.problem ?? null;
  const isFailed = hopeless !== null && readyCount < wanted;
  const trouble = (isFailed ? hopeless : null) ?? troubled[0]?.problem;
  const text = trouble === undefined ? '' : `: ${trouble}`;
  const msg = `${readyCount} of ${wanted} pods run${alert}${text}`;
  const wasRunning = status === POOL_STATUS.running || status === POOL_STATUS.updating;
  const onItsWay = wasRunning ? POOL_STATUS.updating : POOL_STATUS.creating;
  return { status: isFailed ? POOL_STATUS.failed : onItsWay, msg: isFailed ? `${hopeless}${alert}` : msg, readyCount };
}

function heldMembers(pods: readonly PoolPod[]): number {
  return members(pods).filter(pod => !isFree(pod)).length;
}

/** In `ready_count`. */
function isCounted(pod: PoolPod): boolean {
  return pod.isMember && pod.state === 'ready' && !pod.isRetired;
}

function remove(pod: PoolPod): Action {
  return { do: 'remove', pod };
}

function isSame(made: PoolSpec | null, asked: PoolSpec): boolean {
  return made !== null && JSON.stringify(made) === JSON.stringify(asked);
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
