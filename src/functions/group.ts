import type { FunctionInstance } from './function-instance.ts';
import type { AcquireOptions, Clock, GroupKey, ScalingPolicy, SessionRequest } from './policy.ts';
import { callerLeft, waitedTooLong } from './refusals.ts';
import type { Session, VersionReplica } from './replica.ts';

type SlotOutcome = 'done' | 'failed' | 'replace';

/** Slot on an instance, held by one call until `release`. */
export interface Lease {
  readonly instance: FunctionInstance;
  /** Time that the call waited for the slot, milliseconds. */
  readonly queueMs: number;
  /** True when the instance was started after the call had arrived. */
  readonly cold: boolean;
  /**
   * Releases the slot; further calls do nothing.
   * `done`: the instance is good.
   * `failed`: the call got no answer, so the instance is not counted as good.
   * `replace`: the instance may be stuck (a handler timed out). It gets no more calls and ends after its last
   * one.
   */
  release(outcome: SlotOutcome): void;
}

interface Waiter {
  readonly session: SessionRequest | undefined;
  readonly sinceMs: number;
  /** Slots that the call needs on one instance. */
  readonly slots: number;
  readonly resolve: (outcome: Lease | Error) => void;
}

/** Scaler of a group, as the group sees it. */
export interface GroupOwner {
  readonly policy: ScalingPolicy;
  readonly clock: Clock;
  now(): number;
  /** Counts a call that begins (1) or ends (−1) to wait in the group. */
  countWaiting(change: 1 | -1): void;
  /** Starts or ends instances after a change in the group. */
  rescale(group: Group): void;
  /**
   * Notes that a replica of the group has no calls left. Must be cheap: it follows every call of a quiet
   * version.
   */
  becameIdle(group: Group): void;
  stopReplica(replica: VersionReplica): void;
  /**
   * Returns true if an instance should end although calls of its group wait. Other calls have then waited
   * clearly longer for its capacity.
   */
  shouldYield(group: Group): boolean;
}

/**
 * Maximum number of sessions in a group. Sessions without slots stay bound to their instance; above the
 * maximum the oldest is dropped.
 */
const MAX_REMEMBERED_SESSIONS = 10_000;

/**
 * Interchangeable instances of a version, and the calls that wait for a slot on one of them.
 * A group only keeps accounts: it starts no instance and takes the time from its owner. Waiting calls are
 * served in order of arrival. Calls whose session is bound to an instance wait for that instance alone.
 */
export class Group {
  readonly key: GroupKey;
  readonly replicas: VersionReplica[] = [];
  readonly sessions = new Map<string, Session>();
  readonly #owner: GroupOwner;
  /** Waiting calls in order of arrival. */
  readonly #waiting = new Set<Waiter>();
  /** Number of waiting calls with a session. At 0 the loops below need not check bindings. */
  #waitingForSession = 0;

  /** Consecutive failed starts and early deaths; 0 after a call that ended well. */
  failures = 0;
  lastFailure: Error | undefined;
  /** True if the last failure was an early death. The call that ran on the instance may have caused it. */
  diedEarly = false;
  /** Earliest time of the next start. */
  backoffUntilMs = 0;
  /** Cancels the owner's only timer for this group, which fires at `timerAtMs`. */
  cancelTimer: (() => void) | undefined;
  timerAtMs = 0;

  constructor(key: GroupKey, owner: GroupOwner) {
    this.key = key;
    this.#owner = owner;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  get oldestWaitingSinceMs(): number | undefined {
    return this.#waiting.values().next().value?.sinceMs;
  }

  /** Number of instances that count against the maximum: all that have not been removed. */
  get size(): number {
    return this.replicas.length;
  }

  count(state: VersionReplica['state']): number {
    let count = 0;
    for (const replica of this.replicas) if (replica.state === state) count += 1;
    return count;
  }

  /**
   * Returns a free slot, or undefined when the call must wait. Never overtakes a call that waits for any
   * instance.
   */
  tryAcquireSlot(session: SessionRequest | undefined, sinceMs: number): Lease | undefined {
    if (session) return this.#slotForSession(session, sinceMs, this.#hasUnbound());
    if (this.isBusy) return undefined;
    const replica = this.#leastLoaded(1);
    return replica && this.#acquireShared(replica, undefined, sinceMs);
  }

  /**
   * Waits for a slot. Fails with `unavailable` when `maxWaitMs` has passed or the caller leaves, or with the
   * error of `failWaiting`.
   */
  waitForSlot({ session, signal, maxWaitMs }: AcquireOptions, sinceMs: number): Promise<Lease> {
    return new Promise((resolve, reject) => {
      const onAbort = () => giveUp(callerLeft());
      /** Called exactly once, by the slot, the timeout or the abort. */
      const end = (outcome: Lease | Error) => {
        cancelTimeout();
        signal?.removeEventListener('abort', onAbort);
        if (outcome instanceof Error) reject(outcome);
        else resolve(outcome);
      };
      const giveUp = (error: Error) => {
        end(error);
        if (this.#remove(waiter)) this.#owner.rescale(this);
      };
      const waiter: Waiter = { session, sinceMs, slots: this.#slotsOf(session), resolve: end };
      this.#waiting.add(waiter);
      if (session) this.#waitingForSession += 1;
      this.#owner.countWaiting(1);
      const cancelTimeout = this.#owner.clock.after(maxWaitMs, () =>
        giveUp(waitedTooLong(maxWaitMs, this.lastFailure)),
      );
      signal?.addEventListener('abort', onAbort);
      this.#owner.rescale(this);
    });
  }

  /** Gives free slots to waiting calls, oldest first. */
  serve(): void {
    let blocked = false;
    for (const waiter of this.#waiting) {
      const bound = this.#isBound(waiter.session);
      if (blocked && !bound) continue;
      const lease = waiter.session
        ? this.#slotForSession(waiter.session, waiter.sinceMs, false)
        : this.#slotForPlain(waiter.sinceMs);
      if (lease) {
        this.#remove(waiter);
        waiter.resolve(lease);
      } else if (!bound) {
        // Later calls must not take these slots. Otherwise a request for many slots would wait forever.
        blocked = true;
        if (this.#waitingForSession === 0) return;
      }
    }
  }

  /** Fails every waiting call that is not bound to a ready instance. */
  failWaiting(error: Error): void {
    for (const waiter of this.#waiting) {
      if (this.#isBound(waiter.session)) continue;
      this.#remove(waiter);
      waiter.resolve(error);
    }
  }

  /**
   * Returns the number of instances that the waiting calls need. Calls that are bound to a ready instance do
   * not count. `dueMs` excludes calls that arrived later; null excludes none.
   */
  demandInstances(dueMs: number | null): number {
    const { concurrency } = this.#owner.policy;
    if (this.#waitingForSession === 0 && dueMs === null) return Math.ceil(this.#waiting.size / concurrency);
    let slots = 0;
    const sessions = new Map<string, { kept: number; calls: number }>();
    for (const waiter of this.#waiting) {
      const { session, sinceMs, slots: wanted } = waiter;
      if (dueMs !== null && sinceMs > dueMs) break;
      if (session === undefined) slots += 1;
      else if (!this.#isBound(session)) {
        const { kept, calls } = sessions.get(session.id) ?? { kept: 0, calls: 0 };
        sessions.set(session.id, { kept: Math.max(kept, wanted), calls: calls + 1 });
      }
    }
    // All calls of a session run on a single instance, so they never need more than its slots.
    for (const { kept, calls } of sessions.values()) slots += Math.min(concurrency, Math.max(kept, calls));
    return Math.ceil(slots / concurrency);
  }

  /**
   * Returns the arrival time of the first waiting call that arrived after `dueMs` and is bound to no ready
   * instance; undefined for none.
   */
  nextUnboundSinceMs(dueMs: number): number | undefined {
    for (const waiter of this.#waiting) {
      if (waiter.sinceMs > dueMs && !this.#isBound(waiter.session)) return waiter.sinceMs;
    }
    return undefined;
  }

  /** Removes a replica. Its sessions may bind to another. */
  forget(replica: VersionReplica): void {
    const index = this.replicas.indexOf(replica);
    if (index >= 0) this.replicas.splice(index, 1);
    this.#unbindAll(replica);
  }

  /** Stops giving calls to a replica. The replica ends after its last call. */
  drain(replica: VersionReplica): void {
    replica.state = 'draining';
    this.#unbindAll(replica);
  }

  /** Unbinds the sessions of a replica. Sessions that are already bound to another replica stay there. */
  #unbindAll(replica: VersionReplica): void {
    for (const session of replica.sessions.values()) {
      if (this.sessions.get(session.id) === session) this.sessions.delete(session.id);
    }
    replica.sessions.clear();
  }

  /** Releases the slots of expired sessions. Returns true if there were any. */
  expireSessions(): boolean {
    const now = this.#owner.now();
    let expired = false;
    for (const session of this.sessions.values()) {
      if (session.reserved === 0 || session.running > 0 || session.lastUsedMs + session.ttlMs > now) continue;
      session.replica.reserve(session, 0);
      expired = true;
    }
    return expired;
  }

  /** Returns when the next session expires; undefined when no idle session keeps slots. */
  nextSessionEndMs(): number | undefined {
    let next: number | undefined;
    for (const session of this.sessions.values()) {
      if (session.reserved === 0 || session.running > 0) continue;
      next = Math.min(next ?? Number.POSITIVE_INFINITY, session.lastUsedMs + session.ttlMs);
    }
    return next;
  }

  /** Ends a session at once; its running calls continue. Returns false for an unknown session. */
  endSession(id: string): boolean {
    const session = this.sessions.get(id);
    if (!session) return false;
    this.sessions.delete(id);
    session.replica.sessions.delete(id);
    // Slots in use count as shared until their calls end.
    session.replica.sharedInUse += session.inUse;
    session.replica.reservedInUse -= session.inUse;
    session.replica.reserve(session, 0);
    session.inUse = 0;
    this.serve();
    this.#owner.rescale(this);
    return true;
  }

  #slotsOf(session: SessionRequest | undefined): number {
    if (!session) return 1;
    return session.concurrency === -1 ? this.#owner.policy.concurrency : Math.max(1, session.concurrency);
  }

  #isBound(request: SessionRequest | undefined): boolean {
    return request !== undefined && this.sessions.get(request.id)?.replica.state === 'ready';
  }

  /** True if a call waits for any instance. New calls then queue behind it. */
  get isBusy(): boolean {
    return this.#waiting.size > 0 && this.#hasUnbound();
  }

  #remove(waiter: Waiter): boolean {
    if (!this.#waiting.delete(waiter)) return false;
    if (waiter.session) this.#waitingForSession -= 1;
    this.#owner.countWaiting(-1);
    return true;
  }

  #hasUnbound(): boolean {
    if (this.#waitingForSession === 0) return this.#waiting.size > 0;
    for (const waiter of this.#waiting) {
      if (!this.#isBound(waiter.session)) return true;
    }
    return false;
  }

  #leastLoaded(slots: number): VersionReplica | undefined {
    let best: VersionReplica | undefined;
    for (const replica of this.replicas) {
      if (replica.state === 'ready' && replica.free >= slots && (!best || replica.inFlight < best.inFlight))
        best = replica;
    }
    return best;
  }

  #slotForPlain(sinceMs: number): Lease | undefined {
    const replica = this.#leastLoaded(1);
    return replica && this.#acquireShared(replica, undefined, sinceMs);
  }

  #slotForSession(request: SessionRequest, sinceMs: number, mustNotOvertake: boolean): Lease | undefined {
    const session = this.sessions.get(request.id);
    // A session whose instance is stopping counts as unknown, so that another instance can serve it. Other
    // calls do not wait for its end.
    if (session?.replica.state !== 'ready') {
      const replica = mustNotOvertake ? undefined : this.#leastLoaded(this.#slotsOf(request));
      return replica && this.#acquireReserved(this.#bind(request, replica), sinceMs);
    }
    const replica = session.replica;
    if (session.reserved === 0 && replica.free >= this.#slotsOf(request))
      replica.reserve(session, this.#slotsOf(request));
    session.ttlMs = request.ttlMs;
    if (session.inUse < session.reserved) return this.#acquireReserved(session, sinceMs);
    return replica.free > 0 ? this.#acquireShared(replica, session, sinceMs) : undefined;
  }

  #bind(request: SessionRequest, replica: VersionReplica): Session {
    const session: Session = {
      id: request.id,
      replica,
      reserved: 0,
      inUse: 0,
      running: 0,
      ttlMs: request.ttlMs,
      lastUsedMs: this.#owner.now(),
    };
    replica.reserve(session, this.#slotsOf(request));
    replica.sessions.set(session.id, session);
    // A session that binds again moves to the end of the order by age.
    this.sessions.delete(session.id);
    this.sessions.set(session.id, session);
    if (this.sessions.size > MAX_REMEMBERED_SESSIONS) this.#forgetOldestSession();
    return session;
  }

  #forgetOldestSession(): void {
    for (const session of this.sessions.values()) {
      if (session.running > 0 || session.reserved > 0) continue;
      this.sessions.delete(session.id);
      session.replica.sessions.delete(session.id);
      return;
    }
  }

  #acquireShared(replica: VersionReplica, session: Session | undefined, sinceMs: number): Lease {
    replica.sharedInUse += 1;
    if (session) session.running += 1;
    return this.#lease(replica, session, sinceMs, () => {
      replica.sharedInUse -= 1;
    });
  }

  #acquireReserved(session: Session, sinceMs: number): Lease {
    const replica = session.replica;
    session.inUse += 1;
    session.running += 1;
    replica.reservedInUse += 1;
    return this.#lease(replica, session, sinceMs, () => {
      // After `endSession` the slot counts as shared.
      if (session.inUse > 0) {
        session.inUse -= 1;
        replica.reservedInUse -= 1;
      } else replica.sharedInUse -= 1;
    });
  }

  #lease(replica: VersionReplica, session: Session | undefined, sinceMs: number, free: () => void): Lease {
    const instance = replica.instance;
    if (!instance) throw new Error('the slot belongs to an unknown instance');
    let released = false;
    return {
      instance,
      queueMs: this.#owner.now() - sinceMs,
      cold: replica.readyAtMs >= sinceMs,
      release: outcome => {
        if (released) return;
        released = true;
        free();
        if (session) {
          session.running -= 1;
          session.lastUsedMs = this.#owner.now();
          if (session.running === 0 && session.ttlMs === 0) replica.reserve(session, 0);
        }
        this.#released(replica, outcome);
      },
    };
  }

  #released(replica: VersionReplica, outcome: SlotOutcome): void {
    if (outcome === 'done') {
      this.failures = 0;
      replica.servedWell = true;
    }
    if (outcome === 'replace') replica.isStuck = true;
    const isOver = outcome === 'replace' || this.#owner.policy.oneshot;
    if (replica.state === 'ready' && (isOver || (replica.reservedSlots === 0 && this.#owner.shouldYield(this)))) {
      this.drain(replica);
    }
    if (replica.inFlight === 0) {
      replica.idleSinceMs = this.#owner.now();
      if (replica.state === 'draining') this.#owner.stopReplica(replica);
    }
    if (this.#waiting.size > 0) {
      this.serve();
      this.#owner.rescale(this);
    } else if (replica.inFlight === 0) this.#owner.becameIdle(this);
  }
}
