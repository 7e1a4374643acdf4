import { SERVICE_CODES } from '../core/codes.ts';
import { type ServiceError, unavailable } from '../core/error.ts';
import type { Capacity, CapacityUser } from './capacity.ts';
import type { FunctionInstance } from './function-instance.ts';
import { Group, type GroupOwner, type Lease } from './group.ts';
import {
  type AcquireOptions,
  type Clock,
  formatGroupKey,
  type GroupKey,
  type ScalingPolicy,
  type SessionRequest,
} from './policy.ts';
import { Quota } from './quota.ts';
import { callerLeft, largerThanMachine, noneMayRun, queueFull, reservationGone } from './refusals.ts';
import { VersionReplica } from './replica.ts';
import {
  clearlyOlderMs,
  diedEarly,
  failureInsteadOfWait,
  idleAboveMinimum,
  idleTooLong,
  instancesAbove,
  isDispensable,
  minimumOf,
  missingInstances,
  nextEventMs,
  oldestWaitMs,
  recordFailure,
  type ScalingState,
} from './scaling.ts';

export interface ScalerPorts {
  readonly tenant: string;
  /**
   * Starts an instance. Rejects with `CodeFailure` (the user's code) or a `ServiceError`, and leaves no
   * residue then.
   */
  readonly start: (key: GroupKey) => Promise<FunctionInstance>;
  readonly clock: Clock;
  readonly capacity: Capacity;
}

/**
 * Owns all instances of a revision of a function version. Decides where a call runs, how many instances
 * exist, and which calls wait.
 * Invariants:
 * - An instance runs at most `concurrency` calls.
 * - All groups without a label have at most `maxInstances` instances together; those of a label its own
 * maximum.
 * - A call waits in a bounded queue for a bounded time.
 * - Starts never exceed the need of the waiting calls minus the starting instances.
 */
export class VersionScaler implements GroupOwner, CapacityUser {
  readonly tenant: string;
  readonly clock: Clock;
  /** Key of the group for calls without special demands, which `minInstances` applies to. */
  readonly homeKey: GroupKey;
  readonly #ports: ScalerPorts;
  readonly #groups = new Map<string, Group>();
  readonly #quota = new Quota(this.#groups, () => this.#policy);
  readonly #homeText: string;
  #policy: ScalingPolicy;
  #draining = false;
  #waiting = 0;
  #resolveDrained!: () => void;
  /** Resolves when the scaler drains and its last instance has ended. */
  readonly drained: Promise<void> = new Promise(resolve => {
    this.#resolveDrained = resolve;
  });

  constructor(policy: ScalingPolicy, homeKey: GroupKey, ports: ScalerPorts) {
    this.#policy = policy;
    this.homeKey = homeKey;
    this.#homeText = formatGroupKey(homeKey);
    this.#ports = ports;
    this.tenant = ports.tenant;
    this.clock = ports.clock;
    ports.capacity.register(this);
  }

  get policy(): ScalingPolicy {
    return this.#policy;
  }

  /** Calls that wait for a slot. */
  get waiting(): number {
    return this.#waiting;
  }

  /** True if no instance exists, no call waits, and nothing must be kept warm. */
  get isEmpty(): boolean {
    return this.#groups.size === 0;
  }

  get groups(): Iterable<Group> {
    return this.#groups.values();
  }

  countWaiting(change: 1 | -1): void {
    this.#waiting += change;
  }

  now(): number {
    return this.clock.now();
  }

  /** Starts the instances that must be kept warm. */
  start(): void {
    this.setPolicy(this.#policy);
  }

  /**
   * Applies changed reservations. A changed function gets a new scaler instead. Instances above a lower
   * maximum end at once, or after their running calls. Calls that wait for a label without a reservation fail
   * at once.
   */
  setPolicy(policy: ScalingPolicy): void {
    this.#policy = policy;
    if (policy.minInstances > 0) this.#group(this.homeKey);
    for (const [label, bounds] of policy.labels) if (bounds.min > 0) this.#group({ ...this.homeKey, label });
    for (const group of [...this.#groups.values()]) {
      this.#endAbove(group.key.label);
      this.#failWithoutReservation(group);
    }
    for (const group of this.#groups.values()) this.rescale(group);
  }

  /**
   * Returns a slot for one call. Fails with `resource_exhausted` (150429, 150510: the queue is full),
   * `unavailable` (150431: waited too long; or the caller left), or the error of the failed start
   * (`CodeFailure`, `ServiceError`).
   */
  acquire(key: GroupKey, options: AcquireOptions): Promise<Lease> {
    const sinceMs = this.now();
    const group = this.#group(key);
    const lease = group.tryAcquireSlot(options.session, sinceMs);
    if (lease !== undefined) return Promise.resolve(lease);
    const refusal = this.#refuse(group, options);
    if (refusal === undefined) return group.waitForSlot(options, sinceMs);
    this.#dropIfEmpty(group);
    return Promise.reject(refusal);
  }

  /** Returns a slot that is free now; undefined when the call would have to wait. */
  tryAcquire(key: GroupKey, session: SessionRequest | undefined): Lease | undefined {
    return this.#groups.get(this.#textOf(key))?.tryAcquireSlot(session, this.now());
  }

  /**
   * Returns the error that a call without special demands would get now because too many calls wait;
   * undefined when it would be accepted.
   */
  refusal(): ServiceError | undefined {
    if (this.#waiting < this.#policy.maxWaiting) return undefined;
    const group = this.#groups.get(this.#homeText);
    return group?.isBusy ? this.#queueFull(group) : undefined;
  }

  /**
   * Adopts an instance that ran before a restart of the server, or ends it when the maximum is reached. The
   * caller then calls `start`, which starts the missing instances.
   */
  adopt(key: GroupKey, instance: FunctionInstance): void {
    const group = this.#group(key);
    if (this.#quota.left(group.key.label) <= 0) {
      this.#dropIfEmpty(group);
      void instance.stop();
      return;
    }
    const replica = new VersionReplica(this.#policy.concurrency);
    this.#ports.capacity.reserve(this, key);
    group.replicas.push(replica);
    this.#join(group, replica, instance);
    group.serve();
  }

  /** Serves the waiting calls, then ends every instance. New calls go to the scaler of another revision. */
  drain(): Promise<void> {
    this.#draining = true;
    for (const group of this.#groups.values()) this.rescale(group);
    this.#checkDrained();
    return this.drained;
  }

  /** Ends every instance now, busy or not. Requires `drain` first. */
  endAll(): void {
    for (const group of this.#groups.values()) {
      // Stops the instances first, which unbinds their sessions. A bound call would continue to wait and
      // cause another start.
      for (const replica of group.replicas) if (replica.instance) this.stopReplica(replica);
      group.failWaiting(unavailable('the service is stopping', { number: SERVICE_CODES.waitedTooLong.code }));
      // A group that has only waiting calls triggers the check for the drained state nowhere else.
      this.rescale(group);
    }
  }

  /** Ends a session in whichever group has it. Returns false for an unknown session. */
  endSession(id: string): boolean {
    return [...this.#groups.values()].some(group => group.endSession(id));
  }

  hasSession(id: string): boolean {
    return [...this.#groups.values()].some(({ sessions }) => sessions.has(id));
  }

  get hasDemand(): boolean {
    for (const group of this.#groups.values()) if (this.#hasDemandIn(group)) return true;
    return false;
  }

  get waitingSinceMs(): number | undefined {
    return oldestWaitMs(this.#groups.values());
  }

  onCapacity(): void {
    for (const group of this.#groups.values()) if (this.#hasDemandIn(group)) this.rescale(group);
  }

  evictIdle(): boolean {
    return [...this.#groups.values()].some(group => this.#evictFrom(group));
  }

  /**
   * The instance counts until `ended` resolves: the maximum applies to running instances, not to wanted ones.
   */
  stopReplica(replica: VersionReplica): void {
    if (replica.state === 'stopping') return;
    replica.state = 'stopping';
    void replica.instance?.stop(replica.isStuck);
  }

  becameIdle(group: Group): void {
    const armed = group.cancelTimer !== undefined && group.timerAtMs <= this.now() + this.#policy.scaleDownMs;
    if (!armed || this.#draining || this.#isCapacityWanted(group)) this.rescale(group);
  }

  /** Starts and ends instances to match the waiting calls, the minimum and the maximum. */
  rescale(group: Group): void {
    group.cancelTimer?.();
    group.cancelTimer = undefined;
    this.#quota.clearShortage(group);
    if (group.expireSessions()) group.serve();
    this.#startFor(group);
    this.#scaleDown(group);
    this.#arm(group);
    if (this.#draining) this.#checkDrained();
    else this.#dropIfEmpty(group);
  }

  /** Most calls have no special demands: their key is the object `homeKey` itself. */
  #textOf(key: GroupKey): string {
    return key === this.homeKey ? this.#homeText : formatGroupKey(key);
  }

  #group(key: GroupKey): Group {
    const text = this.#textOf(key);
    let group = this.#groups.get(text);
    if (!group) {
      group = new Group(key, this);
      this.#groups.set(text, group);
    }
    return group;
  }

  /** Returns why a call without a slot may not wait; undefined when it may. */
  #refuse(group: Group, options: AcquireOptions): Error | undefined {
    if (options.signal?.aborted) return callerLeft();
    if (!this.#ports.capacity.fits(group.key)) {
      return largerThanMachine(group.key);
    }
    if (this.#quota.maximum(group.key.label) === 0) return noneMayRun(group.key.label);
    if (this.#waiting >= this.#policy.maxWaiting) return this.#queueFull(group);
    return failureInsteadOfWait(group, this.now());
  }

  #queueFull(group: Group): ServiceError {
    if (this.#quota.left(group.key.label) <= 0) return queueFull('maximum', this.#waiting);
    return queueFull(this.#ports.capacity.isFull(this, group.key) ? 'machine' : 'starting', this.#waiting);
  }

  #minimum(group: Group): number {
    return this.#draining ? 0 : minimumOf(group.key, this.homeKey, this.#policy);
  }

  #stateOf(group: Group): ScalingState {
    const minimum = this.#minimum(group);
    return { nowMs: this.now(), policy: this.#policy, minimum, isDraining: this.#draining };
  }

  #hasDemandIn(group: Group): boolean {
    return group.waiting > 0 || group.size < this.#minimum(group);
  }

  #failWithoutReservation(group: Group): void {
    const { label } = group.key;
    if (label !== '' && !this.#policy.labels.has(label)) group.failWaiting(reservationGone(label));
    else if (this.#quota.maximum(label) === 0) group.failWaiting(noneMayRun(label));
  }

  #startFor(group: Group): void {
    let missing = missingInstances(group, this.#stateOf(group));
    while (missing > 0) {
      if (this.#quota.left(group.key.label) <= 0) {
        this.#quota.recordShortage(group, missing);
        this.#evictForMaximum(group);
        return;
      }
      if (!this.#ports.capacity.fits(group.key) || !this.#ports.capacity.tryReserve(this, missing, group.key)) return;
      missing -= 1;
      this.#startReplica(group);
    }
  }

  #startReplica(group: Group): void {
    const replica = new VersionReplica(this.#policy.concurrency);
    group.replicas.push(replica);
    this.#ports.start(group.key).then(
      instance => this.#ready(group, replica, instance),
      (error: unknown) => this.#startFailed(group, replica, error instanceof Error ? error : new Error(String(error))),
    );
  }

  #ready(group: Group, replica: VersionReplica, instance: FunctionInstance): void {
    this.#join(group, replica, instance);
    this.#endAbove(group.key.label);
    group.serve();
    this.rescale(group);
  }

  #join(group: Group, replica: VersionReplica, instance: FunctionInstance): void {
    const now = this.now();
    replica.instance = instance;
    replica.state = 'ready';
    replica.readyAtMs = now;
    replica.idleSinceMs = now;
    void instance.ended.then(reason => this.#ended(group, replica, reason));
  }

  #startFailed(group: Group, replica: VersionReplica, error: Error): void {
    group.forget(replica);
    this.#ports.capacity.release(this, group.key);
    recordFailure(group, error, false, this.now());
    // No instance is ready or starting. The calls fail with the reason now instead of waiting for the next
    // start.
    if (group.count('ready') === 0 && group.count('starting') === 0) group.failWaiting(error);
    this.#rescaleAllFor(group);
  }

  #ended(group: Group, replica: VersionReplica, reason: string): void {
    const isEarly = diedEarly(replica, this.now());
    group.forget(replica);
    this.#ports.capacity.release(this, group.key);
    if (isEarly) {
      const error = unavailable(reason, { number: SERVICE_CODES.instanceEnded.code });
      recordFailure(group, error, true, this.now());
    }
    this.#rescaleAllFor(group);
  }

  /**
   * Rescales the groups after an instance has ended. Groups that share its maximum may need its place; the
   * longest wait comes first.
   */
  #rescaleAllFor(group: Group): void {
    const since = (one: Group) => one.oldestWaitingSinceMs ?? Number.MAX_VALUE;
    const groups = [...this.#groups.values()].filter(one => one === group || this.#hasDemandIn(one));
    for (const one of groups.sort((a, b) => since(a) - since(b))) this.rescale(one);
  }

  #scaleDown(group: Group): void {
    if (group.isBusy) return;
    this.#yieldCapacity(group);
    for (const replica of idleTooLong(group, this.#stateOf(group))) this.stopReplica(replica);
  }

  /**
   * Ends instances above the maximum of a label: those with the fewest calls first, and each after its calls
   * have ended.
   */
  #endAbove(label: string): void {
    const groups = [...this.#groups.values()].filter(({ key }) => key.label === label);
    for (const { group, replica } of instancesAbove(groups, this.#quota.maximum(label))) {
      group.drain(replica);
      if (replica.inFlight === 0) this.stopReplica(replica);
    }
  }

  /** Sets the only timer of a group to its next event. */
  #arm(group: Group): void {
    const state = this.#stateOf(group);
    const next = nextEventMs(group, state);
    if (next === undefined) return;
    group.timerAtMs = next;
    group.cancelTimer = this.clock.after(Math.max(1, next - state.nowMs), () => this.rescale(group));
  }

  shouldYield(group: Group): boolean {
    const sinceMs = clearlyOlderMs(group, this.now());
    if (this.#quota.shortageSince(sinceMs, group) > 0) return group.count('ready') > this.#minimum(group);
    if (this.#ports.capacity.shortageSince(sinceMs, this) <= 0 || group.count('ready') <= this.#minimum(group))
      return false;
    this.#ports.capacity.countYield();
    return true;
  }

  #isCapacityWanted(group: Group): boolean {
    return this.#quota.isShort(group.key.label) || this.#ports.capacity.isWanted(this);
  }

  /** Ends idle instances whose capacity calls of another group or function wait for. */
  #yieldCapacity(group: Group): void {
    while (this.#quota.isShort(group.key.label)) if (!this.#evictFrom(group)) return;
    while (this.#ports.capacity.isWanted(this)) {
      if (!this.#evictFrom(group)) return;
      this.#ports.capacity.countYield();
    }
  }

  #evictForMaximum(group: Group): void {
    for (const other of this.#groups.values()) {
      if (other === group || other.key.label !== group.key.label) continue;
      while (this.#quota.isShort(group.key.label)) if (!this.#evictFrom(other)) break;
    }
  }

  /** Ends one idle instance above the minimum of its group. Returns false when there is none. */
  #evictFrom(group: Group): boolean {
    const replica = idleAboveMinimum(group, this.#stateOf(group));
    if (replica !== undefined) this.stopReplica(replica);
    return replica !== undefined;
  }

  #dropIfEmpty(group: Group): void {
    if (!isDispensable(group, this.#stateOf(group))) return;
    group.cancelTimer?.();
    this.#quota.clearShortage(group);
    this.#groups.delete(formatGroupKey(group.key));
  }

  #checkDrained(): void {
    for (const group of this.#groups.values()) if (group.size > 0 || group.waiting > 0) return;
    for (const group of this.#groups.values()) group.cancelTimer?.();
    this.#ports.capacity.unregister(this);
    this.#resolveDrained();
  }
}
