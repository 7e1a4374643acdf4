import { SERVICE_CODES } from '../core/codes.ts';
import { failedPrecondition, type ServiceError, unavailable } from '../core/error.ts';
import { backoffMs } from '../lib/backoff.ts';
import type { CallSignal } from '../lib/call-signal.ts';
import type { Capacity, CapacityUser } from './capacity.ts';
import type { FunctionInstance } from './function-instance.ts';
import { Group, type GroupOwner, type Lease, noneMayRun, queueFull, reservationGone, waitedTooLong } from './group.ts';
import { type Clock, formatGroupKey, type GroupKey, type ScalingPolicy, type SessionRequest } from './policy.ts';
import { Quota } from './quota.ts';
import { Replica } from './replica.ts';

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

export interface AcquireOptions {
  readonly session?: SessionRequest | undefined;
  readonly signal?: CallSignal | undefined;
  /** Longest time that the call may wait for a slot, milliseconds. */
  readonly maxWaitMs: number;
}

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

/**
 * Owns all instances of a revision of a function version. Decides where a call runs, how many instances
 * exist, and which calls wait.
 * Invariants:
 * - An instance runs at most `concurrency` calls.
 * - All groups without a label have at most `maxInstances` instances together; those of a label its own
 * maximum.
 * - A call waits in a bounded queue for a bounded time.
 * - Starts never exceed what the waiting calls need in addition to the starting instances.
 */
export class VersionScaler implements GroupOwner, CapacityUser {
  readonly tenant: string;
  readonly #ports: ScalerPorts;
  readonly #groups = new Map<string, Group>();
  readonly #quota = new Quota(this.#groups, () => this.#policy);
  /** Key of the group that `minInstances` applies to. */
  readonly #homeKey: GroupKey;
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
    this.#homeKey = homeKey;
    this.#homeText = formatGroupKey(homeKey);
    this.#ports = ports;
    this.tenant = ports.tenant;
    ports.capacity.join(this);
  }

  /** The key of the group for calls without special demands. */
  get homeKey(): GroupKey {
    return this.#homeKey;
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

  now(): number {
    return this.#ports.clock.now();
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
    if (policy.minInstances > 0) this.#group(this.#homeKey);
    for (const [label, bounds] of policy.labels) if (bounds.min > 0) this.#group({ ...this.#homeKey, label });
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
    const lease = group.tryTakeSlot(options.session, sinceMs);
    return lease === undefined ? this.#waitForSlot(group, options, sinceMs) : Promise.resolve(lease);
  }

  /** Returns a slot that is free now; undefined when the call would have to wait. */
  tryAcquire(key: GroupKey, session: SessionRequest | undefined): Lease | undefined {
    return this.#groups.get(this.#textOf(key))?.tryTakeSlot(session, this.now());
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
    if (this.#quotaLeft(group) <= 0) {
      this.#dropIfEmpty(group);
      void instance.stop();
      return;
    }
    const replica = new Replica(this.#policy.concurrency);
    this.#ports.capacity.take(this, key);
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
    for (const group of this.#groups.values()) if (group.endSession(id)) return true;
    return false;
  }

  hasSession(id: string): boolean {
    for (const group of this.#groups.values()) if (group.sessions.has(id)) return true;
    return false;
  }

  get wantsMore(): boolean {
    for (const group of this.#groups.values()) if (this.#wants(group)) return true;
    return false;
  }

  get waitingSinceMs(): number | undefined {
    let since: number | undefined;
    for (const { oldestWaitingSinceMs: oldest } of this.#groups.values()) {
      if (oldest !== undefined && (since === undefined || oldest < since)) since = oldest;
    }
    return since;
  }

  onCapacity(): void {
    for (const group of this.#groups.values()) if (this.#wants(group)) this.rescale(group);
  }

  evictIdle(): boolean {
    for (const group of this.#groups.values()) {
      if (this.#evictFrom(group)) return true;
    }
    return false;
  }

  /**
   * The instance counts until `ended` resolves: the maximum applies to running instances, not to wanted ones.
   */
  stopReplica(replica: Replica): void {
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
    this.#quota.forget(group);
    if (group.expireSessions()) group.serve();
    this.#startFor(group);
    this.#scaleDown(group);
    this.#arm(group);
    if (this.#draining) this.#checkDrained();
    else this.#dropIfEmpty(group);
  }

  /** Most calls have no special demands: their key is the object `#homeKey` itself. */
  #textOf(key: GroupKey): string {
    return key === this.#homeKey ? this.#homeText : formatGroupKey(key);
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

  #waitForSlot(group: Group, options: AcquireOptions, sinceMs: number): Promise<Lease> {
    const refusal = this.#refuse(group, options);
    if (refusal) {
      this.#dropIfEmpty(group);
      return Promise.reject(refusal);
    }
    return new Promise((resolve, reject) => {
      const { session, signal, maxWaitMs } = options;
      const onAbort = () => giveUp(unavailable('the caller went away'));
      /** Called exactly once, by the slot, the timeout or the abort. */
      const settle = (outcome: Lease | Error) => {
        this.#waiting -= 1;
        cancelTimeout();
        signal?.removeEventListener('abort', onAbort);
        if (outcome instanceof Error) reject(outcome);
        else resolve(outcome);
      };
      const giveUp = (error: Error) => {
        settle(error);
        group.callOff(waiter);
      };
      this.#waiting += 1;
      const waiter = group.wait(session, sinceMs, settle);
      const cancelTimeout = this.#ports.clock.after(maxWaitMs, () =>
        giveUp(waitedTooLong(maxWaitMs, group.lastFailure)),
      );
      signal?.addEventListener('abort', onAbort);
      this.rescale(group);
    });
  }

  /** Returns why a call without a slot may not wait; undefined when it may. */
  #refuse(group: Group, options: AcquireOptions): Error | undefined {
    if (options.signal?.aborted) return unavailable('the caller went away');
    if (!this.#ports.capacity.fits(group.key)) {
      // `failed_precondition`, unlike a full queue: waiting would not help.
      return failedPrecondition(
        `an instance with cpu ${group.key.cpuMillis} and memory ${group.key.memoryMb} is larger than the machine`,
        { number: SERVICE_CODES.machineFull.code, retryAfterSeconds: 60 },
      );
    }
    if (this.#quota.maximum(group.key.label) === 0) return noneMayRun(group.key.label);
    if (this.#waiting >= this.#policy.maxWaiting) return this.#queueFull(group);
    // When starts are paused after failures and no instance exists, waiting would only hide the reason. A
    // single early death fails other calls only if the pause is long: one call may have killed the instance.
    if (!group.lastFailure || group.size > 0) return undefined;
    const pauseMs = group.backoffUntilMs - this.now();
    return pauseMs > (group.diedEarly ? MAX_PATIENCE_MS : 0) ? group.lastFailure : undefined;
  }

  #queueFull(group: Group): ServiceError {
    if (this.#quotaLeft(group) <= 0) return queueFull('maximum', this.#waiting);
    return queueFull(this.#ports.capacity.isFull(this, group.key) ? 'machine' : 'starting', this.#waiting);
  }

  #minimum(group: Group): number {
    if (this.#draining) return 0;
    const { key } = group;
    const home = this.#homeKey;
    if (key.sessionContext !== '' || key.customResources !== home.customResources) return 0;
    if (key.cpuMillis !== home.cpuMillis || key.memoryMb !== home.memoryMb) return 0;
    return key.label === '' ? this.#policy.minInstances : (this.#policy.labels.get(key.label)?.min ?? 0);
  }

  #wants(group: Group): boolean {
    return group.waiting > 0 || group.size < this.#minimum(group);
  }

  #failWithoutReservation(group: Group): void {
    const { label } = group.key;
    if (label !== '' && !this.#policy.labels.has(label)) group.failWaiting(reservationGone(label));
    else if (this.#quota.maximum(label) === 0) group.failWaiting(noneMayRun(label));
  }

  /** Returns how many more instances this group may have. */
  #quotaLeft(group: Group): number {
    return this.#quota.left(group.key.label);
  }

  #startFor(group: Group): void {
    const now = this.now();
    if (now < group.backoffUntilMs) return;
    const starting = group.count('starting');
    const { slaQuotaMs } = this.#policy;
    // With a quota, only calls that have waited that long count. Without any ready or starting instance all
    // calls count, because nothing would serve them.
    const patient = slaQuotaMs !== null && (starting > 0 || group.count('ready') > 0);
    const demand = group.demandInstances(patient ? now - slaQuotaMs : null);
    const forMinimum = this.#minimum(group) - starting - group.count('ready');
    let missing = Math.max(demand - starting, forMinimum);
    while (missing > 0) {
      if (this.#quotaLeft(group) <= 0) {
        this.#quota.refused(group, missing);
        this.#evictForMaximum(group);
        return;
      }
      if (!this.#ports.capacity.fits(group.key) || !this.#ports.capacity.tryTake(this, missing, group.key)) return;
      missing -= 1;
      this.#startReplica(group);
    }
  }

  #startReplica(group: Group): void {
    const replica = new Replica(this.#policy.concurrency);
    group.replicas.push(replica);
    this.#ports.start(group.key).then(
      instance => this.#ready(group, replica, instance),
      (error: unknown) => this.#startFailed(group, replica, error instanceof Error ? error : new Error(String(error))),
    );
  }

  #ready(group: Group, replica: Replica, instance: FunctionInstance): void {
    this.#join(group, replica, instance);
    this.#endAbove(group.key.label);
    group.serve();
    this.rescale(group);
  }

  #join(group: Group, replica: Replica, instance: FunctionInstance): void {
    const now = this.now();
    replica.instance = instance;
    replica.state = 'ready';
    replica.readyAtMs = now;
    replica.idleSinceMs = now;
    void instance.ended.then(reason => this.#ended(group, replica, reason));
  }

  #startFailed(group: Group, replica: Replica, error: Error): void {
    group.forget(replica);
    this.#ports.capacity.give(this, group.key);
    this.#backOff(group, error, false);
    // No instance is ready or starting. The calls fail with the reason now instead of waiting for the next
    // start.
    if (group.count('ready') === 0 && group.count('starting') === 0) group.failWaiting(error);
    this.#rescaleAllFor(group);
  }

  #ended(group: Group, replica: Replica, reason: string): void {
    const early = replica.state === 'ready' && !replica.servedWell && this.now() - replica.readyAtMs < EARLY_DEATH_MS;
    group.forget(replica);
    this.#ports.capacity.give(this, group.key);
    if (early) this.#backOff(group, unavailable(reason, { number: SERVICE_CODES.instanceEnded.code }), true);
    this.#rescaleAllFor(group);
  }

  /**
   * Rescales the groups after an instance has ended. Groups that share its maximum may need its place; the
   * longest wait comes first.
   */
  #rescaleAllFor(group: Group): void {
    const since = (one: Group) => one.oldestWaitingSinceMs ?? Number.MAX_VALUE;
    const groups = [...this.#groups.values()].filter(one => one === group || this.#wants(one));
    for (const one of groups.sort((a, b) => since(a) - since(b))) this.rescale(one);
  }

  #backOff(group: Group, error: Error, diedEarly: boolean): void {
    group.lastFailure = error;
    group.diedEarly = diedEarly;
    // Instances that were started together and fail together count as one failure.
    if (this.now() < group.backoffUntilMs) return;
    group.failures += 1;
    group.backoffUntilMs = this.now() + backoffMs(BACKOFF, group.failures);
  }

  #scaleDown(group: Group): void {
    if (group.isBusy) return;
    this.#yieldCapacity(group);
    const now = this.now();
    const idle = group.replicas.filter(replica => this.#isIdle(replica));
    let spare = group.count('ready') + group.count('starting') - this.#minimum(group);
    for (const replica of idle.sort((a, b) => a.idleSinceMs - b.idleSinceMs)) {
      if (spare <= 0) return;
      if (!this.#draining && now - replica.idleSinceMs < this.#policy.scaleDownMs) return;
      this.stopReplica(replica);
      spare -= 1;
    }
  }

  /**
   * Ends instances above the maximum of a label: those with the fewest calls first, and each after its calls
   * have ended.
   */
  #endAbove(label: string): void {
    const ready = [...this.#groups.values()]
      .filter(({ key }) => key.label === label)
      .flatMap(group => group.replicas.map(replica => ({ group, replica })))
      .filter(({ replica }) => replica.state === 'ready');
    const over = ready.length - this.#quota.maximum(label);
    if (over <= 0) return;
    ready.sort((a, b) => a.replica.inFlight - b.replica.inFlight || a.replica.idleSinceMs - b.replica.idleSinceMs);
    for (const { group, replica } of ready.slice(0, over)) {
      group.drain(replica);
      if (replica.inFlight === 0) this.stopReplica(replica);
    }
  }

  /**
   * Sets the only timer of a group to its next event: end of a pause, failures to forget, a quota, an idle
   * instance, a session.
   */
  #arm(group: Group): void {
    const now = this.now();
    let next = group.nextSessionEndMs();
    const consider = (atMs: number) => {
      next = Math.min(next ?? atMs, atMs);
    };
    if (group.backoffUntilMs > now && (group.waiting > 0 || this.#minimum(group) > 0)) consider(group.backoffUntilMs);
    // Callers choose the keys, and a key may never be used again. Without this timer such groups would
    // accumulate.
    const forgetsAtMs = this.#forgetsAtMs(group);
    if (group.size === 0 && group.waiting === 0 && forgetsAtMs > now) consider(forgetsAtMs);
    const { slaQuotaMs } = this.#policy;
    // The first call in the queue is no measure. It may be due already or wait for its instance alone, while
    // calls behind it still need the timer.
    const since = slaQuotaMs === null ? undefined : group.nextUnboundSinceMs(now - slaQuotaMs);
    if (since !== undefined && slaQuotaMs !== null) consider(since + slaQuotaMs);
    if (!group.isBusy && group.count('ready') + group.count('starting') > this.#minimum(group)) {
      for (const replica of group.replicas) {
        if (this.#isIdle(replica)) {
          consider(Math.max(now, replica.idleSinceMs + this.#policy.scaleDownMs));
        }
      }
    }
    if (next === undefined) return;
    group.timerAtMs = next;
    group.cancelTimer = this.#ports.clock.after(Math.max(1, next - now), () => this.rescale(group));
  }

  #isIdle(replica: Replica): boolean {
    if (replica.state !== 'ready' || replica.inFlight > 0) return false;
    // While the scaler drains, no call can arrive for a session. Its reserved slots would only keep the
    // instance alive.
    return replica.reservedSlots === 0 || this.#draining;
  }

  givesWay(group: Group): boolean {
    // A call that waits here may be as old as those elsewhere. Only calls that have waited clearly longer
    // take precedence.
    const sinceMs = Math.min(this.now(), group.oldestWaitingSinceMs ?? Number.POSITIVE_INFINITY) - MAX_PATIENCE_MS;
    if (this.#quota.lackedSince(sinceMs, group) > 0) return group.count('ready') > this.#minimum(group);
    if (this.#ports.capacity.lackedSince(sinceMs, this) <= 0 || group.count('ready') <= this.#minimum(group))
      return false;
    this.#ports.capacity.yielded();
    return true;
  }

  #isCapacityWanted(group: Group): boolean {
    return this.#quota.isLacking(group.key.label) || this.#ports.capacity.isWanted(this);
  }

  /** Ends idle instances whose capacity calls of another group or function wait for. */
  #yieldCapacity(group: Group): void {
    while (this.#quota.isLacking(group.key.label)) if (!this.#evictFrom(group)) return;
    while (this.#ports.capacity.isWanted(this)) {
      if (!this.#evictFrom(group)) return;
      this.#ports.capacity.yielded();
    }
  }

  #evictForMaximum(group: Group): void {
    for (const other of this.#groups.values()) {
      if (other === group || other.key.label !== group.key.label) continue;
      while (this.#quota.isLacking(group.key.label)) if (!this.#evictFrom(other)) break;
    }
  }

  /** Ends one idle instance above the minimum of its group. Returns false when there is none. */
  #evictFrom(group: Group): boolean {
    if (group.isBusy || group.count('ready') <= this.#minimum(group)) return false;
    for (const replica of group.replicas) {
      if (this.#isIdle(replica)) {
        this.stopReplica(replica);
        return true;
      }
    }
    return false;
  }

  #dropIfEmpty(group: Group): void {
    if (group.size > 0 || group.waiting > 0 || this.#minimum(group) > 0) return;
    if (this.now() < this.#forgetsAtMs(group)) return;
    group.cancelTimer?.();
    this.#quota.forget(group);
    this.#groups.delete(formatGroupKey(group.key));
  }

  /**
   * Returns when an empty group may be dropped. A group with failures is kept longer, so that the next call
   * finds its pause.
   */
  #forgetsAtMs(group: Group): number {
    return group.failures === 0 ? group.backoffUntilMs : group.backoffUntilMs + FAILURES_KEPT_MS;
  }

  #checkDrained(): void {
    for (const group of this.#groups.values()) if (group.size > 0 || group.waiting > 0) return;
    for (const group of this.#groups.values()) group.cancelTimer?.();
    this.#ports.capacity.leave(this);
    this.#resolveDrained();
  }
}
