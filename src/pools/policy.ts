import { POOL_STATUS, type Pool, type PoolSpec, type PoolStatus } from '../core/pool.ts';
import type { PoolBackend, PoolPod, PoolSet, PoolView } from '../sandbox/pools.ts';

/** State of a pool at one moment. */
export interface PoolSnapshot {
  /** Null: the pool has no record (any more). */
  readonly pool: Pool | null;
  readonly view: PoolView;
  readonly nowMs: number;
  /** Reason why the pool must have no pods, or null. */
  readonly refusal: string | null;
  /** Reason why the pool cannot be made, or null. */
  readonly problem: string | null;
  /** True if the pool may be made now, or after a failure again. */
  readonly mayMake: boolean;
  /**
   * Time of the next repair, epoch milliseconds. Pods that break repeatedly are replaced at growing
   * intervals.
   */
  readonly mayRepairAtMs: number;
}

export interface Plan {
  /** Written first. If the write is refused, no action follows. Null: the pool has no record. */
  readonly report: Omit<Pool, 'spec'> | null;
  readonly actions: readonly PoolAction[];
  /** True if nothing of a deleted pool is left. */
  readonly isGone: boolean;
  /** Time of the next pass without a change, epoch milliseconds; infinite: only after a change. */
  readonly wakeAtMs: number;
  /** Pods that have been pending for longer than the pool's threshold. */
  readonly overdue: readonly PoolPod[];
}

/** Idle time of scaled pods when `idle_recycle_time.scaled` is 0. */
const SCALED_IDLE_MS = 60_000;
/** Minimum time that a pod may take to start before the pool gives it up. */
const STARTING_MS = 120_000;
const RECYCLE_LABELS = ['svc-idle-to-recycle', 'yr-idle-to-recycle'];
const NEVER = Number.POSITIVE_INFINITY;

/** Returns the actions for a pool and the content of its record. A pure function of `seen`. */
export function decide(seen: PoolSnapshot): Plan {
  const { pool, view } = seen;
  if (pool === null || pool.status === POOL_STATUS.deleting) return dissolve(pool, view);
  // A request is acknowledged before it is begun.
  if (pool.status === POOL_STATUS.new) return acknowledge(seen, POOL_STATUS.creating, 'creating');
  if (pool.status === POOL_STATUS.updateRequested) return acknowledge(seen, POOL_STATUS.updating, 'updating');
  return seen.refusal === null ? planUpkeep(pool, seen) : refuse(pool, seen.refusal, view);
}

/**
 * Plans a pool that must have no pods, and keeps its record. Free pods end at once; the others end with their
 * instances.
 */
function refuse(pool: Pool, msg: string, view: PoolView): Plan {
  const readyCount = view.pods.filter(isCounted).length;
  return { ...dissolve(pool, view), report: { status: POOL_STATUS.failed, msg, readyCount }, isGone: false };
}

/** Plans the end of a pool. Free pods end at once; the others end with their instances. */
function dissolve(pool: Pool | null, view: PoolView): Plan {
  const { set, pods } = view;
  const held = pods.filter(({ instanceId }) => instanceId !== null).length;
  const msg = held === 0 ? 'deleting' : `deleting: ${held} pods hold instances`;
  const report = pool && { status: POOL_STATUS.deleting, msg, readyCount: pods.filter(isCounted).length };
  const rest = { report, wakeAtMs: NEVER, overdue: [], isGone: false };
  // While the pool keeps its set, the cluster would replace each pod that ends.
  if (set !== null && !set.isEnding) return { ...rest, actions: [{ do: 'disband' }] };
  const actions = pods.filter(pod => isFree(pod) && pod.state !== 'ending').map(remove);
  return { ...rest, actions, isGone: set === null && pods.length === 0 };
}

function acknowledge({ view, nowMs }: PoolSnapshot, status: PoolStatus, msg: string): Plan {
  const readyCount = view.pods.filter(isCounted).length;
  return { report: { status, msg, readyCount }, actions: [], isGone: false, wakeAtMs: nowMs, overdue: [] };
}

function planUpkeep(pool: Pool, seen: PoolSnapshot): Plan {
  const { spec } = pool;
  const { view, nowMs, mayMake } = seen;
  const { set } = view;
  const threshold = spec.pod_pending_duration_threshold;
  const pending = view.pods.filter(isPending);
  const overdue = pending.filter(pod => isOverdue(pod, threshold, nowMs));
  const wakes = pending.map(pod => overdueAtMs(pod, threshold)).filter(atMs => atMs > nowMs);
  const isApplied = set !== null && !set.isEnding && set.isUpToDate && isSame(set.spec, spec);
  const actions: PoolAction[] = [];
  let target = spec.size;
  if (!isApplied) {
    // A set that is ending must be removed before another can have its name.
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

/** Returns how many pods a pool must keep now: never fewer than hold an instance. */
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
  // A pod that never becomes ready may be given up too.
  const leavesAtMs = (pod: PoolPod) =>
    pod.isReady ? pod.restsSinceMs + idleMs : pod.createdAtMs + Math.max(idleMs, STARTING_MS);
  const leaving = free.filter(pod => pod.isRetired || leavesAtMs(pod) <= nowMs).length;
  const wakes = free.map(leavesAtMs).filter(atMs => atMs > nowMs);
  const isStarting = free.some(pod => !pod.isReady && !pod.isRetired && leavesAtMs(pod) > nowMs);
  const leave = isStarting ? 0 : Math.min(leaving, set.replicas - least);
  return { replicas: set.replicas - leave, wakes, isPatient: true };
}

/** Returns the pods to replace or to remove. */
function renew(spec: PoolSpec, { view, nowMs, mayRepairAtMs }: PoolSnapshot, isShrinking: boolean) {
  const actions: PoolAction[] = [];
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
      // The pod was retired and then needed again, or is a surplus pod that the cluster did not end.
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

/** Returns how long a used pod may rest before it is replaced, milliseconds. */
function recycleMsOf(spec: PoolSpec): number {
  const isFixed = spec.max_size <= spec.size && spec.horizontal_pod_autoscaler_spec === '';
  const label = RECYCLE_LABELS.map(name => spec.labels?.[name]).find(value => value !== undefined);
  if (isFixed && label !== undefined) return label === 'unlimited' ? NEVER : Number(label) * 1000;
  const { reserved } = spec.idle_recycle_time;
  return reserved > 0 ? reserved * 1000 : NEVER;
}

function reportOf(
  { spec, status }: Pool,
  { view, problem }: PoolSnapshot,
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

/** Returns true if a pod counts in `ready_count`. */
function isCounted(pod: PoolPod): boolean {
  return pod.isMember && pod.state === 'ready' && !pod.isRetired;
}

function remove(pod: PoolPod): PoolAction {
  return { do: 'remove', pod };
}

function isSame(made: PoolSpec | null, asked: PoolSpec): boolean {
  return made !== null && JSON.stringify(made) === JSON.stringify(asked);
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

/** Action of the controller on a pool. */
export type PoolAction =
  | { readonly do: 'apply'; readonly replicas: number }
  | { readonly do: 'scale'; readonly from: number; readonly to: number }
  | { readonly do: 'keepAtLeast'; readonly replicas: number }
  | { readonly do: 'retire' | 'remove' | 'repair'; readonly pod: PoolPod }
  | { readonly do: 'disband' };

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
