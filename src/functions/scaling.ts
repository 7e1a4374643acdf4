import { backoffMs } from '../lib/backoff.ts';
import type { Group } from './group.ts';
import type { GroupKey, ScalingPolicy } from './policy.ts';
import type { VersionReplica } from './replica.ts';

/** Pause after the first failed start; each further failure doubles it. */
const BACKOFF = { firstMs: 250, longestMs: 30_000 };
/**
 * Time that a group without instances is kept after the pause of its last failure. A call within that time
 * finds the doubled pause.
 */
const FAILURES_KEPT_MS = 30_000;

/**
 * Threshold of two waits. After an early death, calls wait for the next start if it is due sooner than this.
 * Calls that have waited this much longer than others get the capacity of an instance that serves those.
 */
const MAX_PATIENCE_MS = 1_000;
/** Lifetime below which a death counts as a failed start, if no call has ended well on the instance. */
const EARLY_DEATH_MS = 10_000;

/** Moment and rules of a scaling decision about one group. */
export interface ScalingState {
  readonly nowMs: number;
  readonly policy: ScalingPolicy;
  /** Instances that the group keeps without a call. */
  readonly minimum: number;
  readonly isDraining: boolean;
}

/** Returns how many instances a group keeps without a call. */
export function minimumOf(key: GroupKey, home: GroupKey, policy: ScalingPolicy): number {
  if (key.sessionContext !== '' || key.customResources !== home.customResources) return 0;
  if (key.cpuMillis !== home.cpuMillis || key.memoryMb !== home.memoryMb) return 0;
  return key.label === '' ? policy.minInstances : (policy.labels.get(key.label)?.min ?? 0);
}

/** Returns how many instances a group must start now for its waiting calls and its minimum. */
export function missingInstances(group: Group, { nowMs, policy, minimum }: ScalingState): number {
  if (nowMs < group.backoffUntilMs) return 0;
  const starting = group.count('starting');
  const ready = group.count('ready');
  const { slaQuotaMs } = policy;
  // With a quota, only calls that have waited that long count. Without any ready or starting instance all
  // calls count, because nothing would serve them.
  const isPatient = slaQuotaMs !== null && starting + ready > 0;
  const demand = group.demandInstances(isPatient ? nowMs - slaQuotaMs : null);
  return Math.max(demand - starting, minimum - starting - ready, 0);
}

/** Returns the instances of a group that have been idle for too long, longest first. */
export function idleTooLong(
  group: Group,
  { nowMs, policy, minimum, isDraining }: ScalingState,
): readonly VersionReplica[] {
  const spare = group.count('ready') + group.count('starting') - minimum;
  if (spare <= 0) return [];
  return group.replicas
    .filter(replica => isIdle(replica, isDraining) && (isDraining || nowMs - replica.idleSinceMs >= policy.scaleDownMs))
    .sort((a, b) => a.idleSinceMs - b.idleSinceMs)
    .slice(0, spare);
}

/** Returns one idle instance above the minimum of its group; undefined when there is none. */
export function idleAboveMinimum(
  group: Group,
  { minimum, isDraining }: Pick<ScalingState, 'minimum' | 'isDraining'>,
): VersionReplica | undefined {
  if (group.isBusy || group.count('ready') <= minimum) return undefined;
  return group.replicas.find(replica => isIdle(replica, isDraining));
}

/** Returns true for a ready instance without calls or reserved slots. */
function isIdle(replica: VersionReplica, isDraining: boolean): boolean {
  if (replica.state !== 'ready' || replica.inFlight > 0) return false;
  // While the scaler drains, no call can arrive for a session. Its reserved slots would only keep the
  // instance alive.
  return replica.reservedSlots === 0 || isDraining;
}

/** Returns the ready instances above a maximum: those with the fewest calls, the longest idle first. */
export function instancesAbove(groups: readonly Group[], maximum: number) {
  const ready = groups
    .flatMap(group => group.replicas.map(replica => ({ group, replica })))
    .filter(({ replica }) => replica.state === 'ready');
  ready.sort((a, b) => a.replica.inFlight - b.replica.inFlight || a.replica.idleSinceMs - b.replica.idleSinceMs);
  return ready.slice(0, Math.max(0, ready.length - maximum));
}

/**
 * Returns the time of a group's next event: the end of a pause, failures to forget, a quota, an idle instance
 * or a session. Undefined when no event is due.
 */
export function nextEventMs(group: Group, { nowMs, policy, minimum, isDraining }: ScalingState): number | undefined {
  let next = group.nextSessionEndMs();
  const consider = (atMs: number) => {
    next = Math.min(next ?? atMs, atMs);
  };
  if (group.backoffUntilMs > nowMs && (group.waiting > 0 || minimum > 0)) consider(group.backoffUntilMs);
  // Callers choose the keys, and a key may never be used again. Without this event such groups would
  // accumulate.
  const forgetMs = forgetsAtMs(group);
  if (group.size === 0 && group.waiting === 0 && forgetMs > nowMs) consider(forgetMs);
  const { slaQuotaMs } = policy;
  // The first call in the queue is no measure. It may be due already or wait for its instance alone, while
  // calls behind it still need the event.
  const sinceMs = slaQuotaMs === null ? undefined : group.nextUnboundSinceMs(nowMs - slaQuotaMs);
  if (sinceMs !== undefined && slaQuotaMs !== null) consider(sinceMs + slaQuotaMs);
  if (!group.isBusy && group.count('ready') + group.count('starting') > minimum) {
    for (const replica of group.replicas) {
      if (isIdle(replica, isDraining)) consider(Math.max(nowMs, replica.idleSinceMs + policy.scaleDownMs));
    }
  }
  return next;
}

/** Returns true if nothing keeps a group: no instance, no call, no minimum and no recent failure. */
export function isDispensable(group: Group, { nowMs, minimum }: Pick<ScalingState, 'nowMs' | 'minimum'>): boolean {
  return group.size === 0 && group.waiting === 0 && minimum === 0 && nowMs >= forgetsAtMs(group);
}

/**
 * Returns when an empty group may be dropped. A group with failures is kept longer, so that the next call
 * finds its pause.
 */
function forgetsAtMs(group: Group): number {
  return group.failures === 0 ? group.backoffUntilMs : group.backoffUntilMs + FAILURES_KEPT_MS;
}

/** Records a failed start or an early death, and pauses the starts of the group. */
export function recordFailure(group: Group, error: Error, diedEarly: boolean, nowMs: number): void {
  group.lastFailure = error;
  group.diedEarly = diedEarly;
  // Instances that were started together and fail together count as one failure.
  if (nowMs < group.backoffUntilMs) return;
  group.failures += 1;
  group.backoffUntilMs = nowMs + backoffMs(BACKOFF, group.failures);
}

/** Returns true if the death of an instance counts as a failed start. */
export function diedEarly(replica: VersionReplica, nowMs: number): boolean {
  return replica.state === 'ready' && !replica.servedWell && nowMs - replica.readyAtMs < EARLY_DEATH_MS;
}

/** Returns the last failure if a call must not wait for the next start; undefined when it may. */
export function failureInsteadOfWait(group: Group, nowMs: number): Error | undefined {
  // When starts are paused after failures and no instance exists, waiting would only hide the reason. A
  // single early death fails other calls only if the pause is long: one call may have killed the instance.
  if (!group.lastFailure || group.size > 0) return undefined;
  const pauseMs = group.backoffUntilMs - nowMs;
  return pauseMs > (group.diedEarly ? MAX_PATIENCE_MS : 0) ? group.lastFailure : undefined;
}

/** Returns the arrival time of the oldest waiting call; undefined when no call waits. */
export function oldestWaitMs(groups: Iterable<Group>): number | undefined {
  let oldestMs: number | undefined;
  for (const { oldestWaitingSinceMs: sinceMs } of groups) {
    if (sinceMs !== undefined && (oldestMs === undefined || sinceMs < oldestMs)) oldestMs = sinceMs;
  }
  return oldestMs;
}

/**
 * Returns the arrival time up to which calls elsewhere take precedence over those of a group. A call that
 * waits here may be as old as those elsewhere, so they must have waited clearly longer.
 */
export function clearlyOlderMs(group: Group, nowMs: number): number {
  return Math.min(nowMs, group.oldestWaitingSinceMs ?? Number.POSITIVE_INFINITY) - MAX_PATIENCE_MS;
}
