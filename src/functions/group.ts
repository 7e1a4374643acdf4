import { SERVICE_CODES } from '../core/codes.ts';
import { resourceExhausted, type ServiceError, unavailable } from '../core/error.ts';
import type { GroupKey, ServicePolicy, SessionRequest } from './policy.ts';
import type { Replica, ServiceInstance, Session } from './replica.ts';
import { type InLine, WaitingLine } from './waiting-line.ts';

type SlotOutcome = 'done' | 'failed' | 'replace';

/** A slot on an instance, taken by one call until `release`. */
export interface Lease {
  readonly instance: ServiceInstance;
  /** How long the call waited for it, milliseconds. */
  readonly queueMs: number;
  /** True when the instance was started after the call had arrived. */
  readonly cold: boolean;
  /**
   * Gives the slot back, once. `done`: the instance is good. `failed`: the call got no answer, which says nothing good of it. `replace`: it
   * may be stuck (a handler that timed out), so it gets no more calls and ends when its last one has.
   */
  release(outcome: SlotOutcome): void;
}

export interface Waiter extends InLine<Waiter> {
  readonly session: SessionRequest | undefined;
  readonly sinceMs: number;
  /** Slots that it needs on one instance. */
  readonly slots: number;
  readonly settle: (outcome: Lease | Error) => void;
}

/** The service of a group, as the group sees it. */
export interface GroupOwner {
  readonly policy: ServicePolicy;
  now(): number;
  /** Something changed that may call for more or fewer instances. */
  rescale(group: Group): void;
  /** A replica of the group has no call any more; cheap, since it comes after every call of a quiet service. */
  becameIdle(group: Group): void;
  stopReplica(replica: Replica): void;
  /** Whether an instance of the group, though calls wait for it, gives capacity back for others whose calls have waited longer. */
  givesWay(group: Group): boolean;
}

/** Sessions whose slots were given back are remembered for their instance; above this many the oldest are forgotten. */
const MAX_REMEMBERED_SESSIONS = 10_000;

/**
 * The interchangeable instances of one version, and the calls that wait for a slot on one of them.
 *
 * Pure bookkeeping: it starts nothing and knows no time but the owner's. Waiting calls are served strictly in order, except those
 * that are bound to one instance by their session: they wait for that instance alone.
 */
export class Group {
  readonly key: GroupKey;
  readonly replicas: Replica[] = [];
  readonly sessions = new Map<string, Session>();
  readonly #owner: GroupOwner;
  readonly #waiting = new WaitingLine<Waiter>();
  /** Of those that wait: who asks for a session. With none of them nobody has to be looked at twice. */
  #waitingForSession = 0;

  /** Failed starts and early deaths in a row; 0 after a call that ended well. */
  failures = 0;
  lastFailure: Error | undefined;
  /** It was an early death: what ran on the instance may have caused it. */
  diedEarly = false;
  /** No start before this moment. */
  backoffUntilMs = 0;
  /** The owner's one timer for this group, and when it fires. */
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
    return this.#waiting.first?.sinceMs;
  }

  /** Instances that count against the maximum: everything that is not gone. */
  get size(): number {
    return this.replicas.length;
  }

  count(state: Replica['state']): number {
    let count = 0;
    for (const replica of this.replicas) if (replica.state === state) count += 1;
    return count;
  }

  /** A slot now, or undefined when the call must wait. Never overtakes a call that waits for any instance. */
  tryTakeSlot(session: SessionRequest | undefined, sinceMs: number): Lease | undefined {
    if (session) return this.#slotForSession(session, sinceMs, this.#hasUnbound());
    if (this.isBusy) return undefined;
    const replica = this.#leastLoaded(1);
    return replica && this.#takeShared(replica, undefined, sinceMs);
  }

  /** Waits for a slot until it is granted, failed, or called off. */
  wait(session: SessionRequest | undefined, sinceMs: number, settle: Waiter['settle']): Waiter {
    const waiter: Waiter = {
      session,
      sinceMs,
      slots: this.#slotsOf(session),
      settle,
      isInLine: false,
      before: undefined,
      behind: undefined,
    };
    this.#waiting.join(waiter);
    if (session) this.#waitingForSession += 1;
    return waiter;
  }

  callOff(waiter: Waiter): void {
    if (this.#leave(waiter)) this.#owner.rescale(this);
  }

  /** Gives free slots to those who wait, oldest first. */
  serve(): void {
    let blocked = false;
    let behind: Waiter | undefined;
    for (let waiter = this.#waiting.first; waiter !== undefined; waiter = behind) {
      behind = waiter.behind;
      const bound = this.#isBound(waiter.session);
      if (blocked && !bound) continue;
      const lease = waiter.session
        ? this.#slotForSession(waiter.session, waiter.sinceMs, false)
        : this.#slotForPlain(waiter.sinceMs);
      if (lease) {
        this.#leave(waiter);
        waiter.settle(lease);
      } else if (!bound) {
        // Nobody behind it may take what it waits for, or a large request would wait for ever.
        blocked = true;
        if (this.#waitingForSession === 0) return;
      }
    }
  }

  /** Ends the wait of everybody who is not bound to a living instance. */
  failWaiting(error: Error): void {
    let behind: Waiter | undefined;
    for (let waiter = this.#waiting.first; waiter !== undefined; waiter = behind) {
      behind = waiter.behind;
      if (this.#isBound(waiter.session)) continue;
      this.#leave(waiter);
      waiter.settle(error);
    }
  }

  /** Slots that waiting calls need and that no living instance can promise them; `dueMs` leaves out those that came later, null nobody. */
  demandInstances(dueMs: number | null): number {
    const { concurrency } = this.#owner.policy;
    if (this.#waitingForSession === 0 && dueMs === null) return Math.ceil(this.#waiting.size / concurrency);
    let slots = 0;
    const sessions = new Map<string, { kept: number; calls: number }>();
    for (let waiter = this.#waiting.first; waiter !== undefined; waiter = waiter.behind) {
      const { session, sinceMs, slots: wanted } = waiter;
      if (dueMs !== null && sinceMs > dueMs) break;
      if (session === undefined) slots += 1;
      else if (!this.#isBound(session)) {
        const { kept, calls } = sessions.get(session.id) ?? { kept: 0, calls: 0 };
        sessions.set(session.id, { kept: Math.max(kept, wanted), calls: calls + 1 });
      }
    }
    // All calls of one session go to one instance, however many they are.
    for (const { kept, calls } of sessions.values()) slots += Math.min(concurrency, Math.max(kept, calls));
    return Math.ceil(slots / concurrency);
  }

  /** Since when the first waits that came after `dueMs` and is bound to no living instance; undefined when there is none. */
  nextUnboundSinceMs(dueMs: number): number | undefined {
    for (let waiter = this.#waiting.first; waiter !== undefined; waiter = waiter.behind) {
      if (waiter.sinceMs > dueMs && !this.#isBound(waiter.session)) return waiter.sinceMs;
    }
    return undefined;
  }

  /** A replica left: its sessions may bind to another. */
  forget(replica: Replica): void {
    const index = this.replicas.indexOf(replica);
    if (index >= 0) this.replicas.splice(index, 1);
    this.#unbindAll(replica);
  }

  /** No call of its sessions comes to it any more. One that has been bound to another replica meanwhile stays there. */
  #unbindAll(replica: Replica): void {
    for (const session of replica.sessions.values()) {
      if (this.sessions.get(session.id) === session) this.sessions.delete(session.id);
    }
    replica.sessions.clear();
  }

  /** Gives back the slots of sessions whose time is over; true when there were any. */
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

  /** When the next session's time is over; undefined when none keeps slots. */
  nextSessionEndMs(): number | undefined {
    let next: number | undefined;
    for (const session of this.sessions.values()) {
      if (session.reserved === 0 || session.running > 0) continue;
      next = Math.min(next ?? Number.POSITIVE_INFINITY, session.lastUsedMs + session.ttlMs);
    }
    return next;
  }

  /** Ends a session at once; its running calls go on. False when it is not known. */
  endSession(id: string): boolean {
    const session = this.sessions.get(id);
    if (!session) return false;
    this.sessions.delete(id);
    session.replica.sessions.delete(id);
    // Slots in use become shared ones until their calls end.
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

  /** Whether a call waits for whichever instance is free first: those that come wait behind it. */
  get isBusy(): boolean {
    return this.#waiting.size > 0 && this.#hasUnbound();
  }

  #leave(waiter: Waiter): boolean {
    if (!this.#waiting.leave(waiter)) return false;
    if (waiter.session) this.#waitingForSession -= 1;
    return true;
  }

  #hasUnbound(): boolean {
    if (this.#waitingForSession === 0) return this.#waiting.size > 0;
    for (let waiter = this.#waiting.first; waiter !== undefined; waiter = waiter.behind) {
      if (!this.#isBound(waiter.session)) return true;
    }
    return false;
  }

  #leastLoaded(slots: number): Replica | undefined {
    let best: Replica | undefined;
    for (const replica of this.replicas) {
      if (replica.state === 'ready' && replica.free >= slots && (!best || replica.inFlight < best.inFlight))
        best = replica;
    }
    return best;
  }

  #slotForPlain(sinceMs: number): Lease | undefined {
    const replica = this.#leastLoaded(1);
    return replica && this.#takeShared(replica, undefined, sinceMs);
  }

  #slotForSession(request: SessionRequest, sinceMs: number, mustNotOvertake: boolean): Lease | undefined {
    const session = this.sessions.get(request.id);
    // One whose instance stops is as good as unknown: an idle instance may serve it, and nobody has to wait behind it for the end.
    if (session?.replica.state !== 'ready') {
      const replica = mustNotOvertake ? undefined : this.#leastLoaded(this.#slotsOf(request));
      return replica && this.#takeReserved(this.#bind(request, replica), sinceMs);
    }
    const replica = session.replica;
    if (session.reserved === 0 && replica.free >= this.#slotsOf(request))
      replica.reserve(session, this.#slotsOf(request));
    session.ttlMs = request.ttlMs;
    if (session.inUse < session.reserved) return this.#takeReserved(session, sinceMs);
    return replica.free > 0 ? this.#takeShared(replica, session, sinceMs) : undefined;
  }

  #bind(request: SessionRequest, replica: Replica): Session {
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
    // One that goes on elsewhere is none of the oldest any more.
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

  #takeShared(replica: Replica, session: Session | undefined, sinceMs: number): Lease {
    replica.sharedInUse += 1;
    if (session) session.running += 1;
    return this.#lease(replica, session, sinceMs, () => {
      replica.sharedInUse -= 1;
    });
  }

  #takeReserved(session: Session, sinceMs: number): Lease {
    const replica = session.replica;
    session.inUse += 1;
    session.running += 1;
    replica.reservedInUse += 1;
    return this.#lease(replica, session, sinceMs, () => {
      // After `endSession` the slot had become a shared one.
      if (session.inUse > 0) {
        session.inUse -= 1;
        replica.reservedInUse -= 1;
      } else replica.sharedInUse -= 1;
    });
  }

  #lease(replica: Replica, session: Session | undefined, sinceMs: number, giveBack: () => void): Lease {
    const instance = replica.instance;
    if (!instance) throw new Error('a slot on an instance that is not there');
    let released = false;
    return {
      instance,
      queueMs: this.#owner.now() - sinceMs,
      cold: replica.readyAtMs >= sinceMs,
      release: outcome => {
        if (released) return;
        released = true;
        giveBack();
        if (session) {
          session.running -= 1;
          session.lastUsedMs = this.#owner.now();
          if (session.running === 0 && session.ttlMs === 0) replica.reserve(session, 0);
        }
        this.#released(replica, outcome);
      },
    };
  }

  #released(replica: Replica, outcome: SlotOutcome): void {
    if (outcome === 'done') {
      this.failures = 0;
      replica.servedWell = true;
    }
    if (outcome === 'replace') replica.isStuck = true;
    const isOver = outcome === 'replace' || this.#owner.policy.oneshot;
    if (replica.state === 'ready' && (isOver || (replica.reservedSlots === 0 && this.#owner.givesWay(this)))) {
      replica.state = 'draining';
      this.#unbindAll(replica);
    }
    if (replica.inFlight === 0) {
      replica.idleSinceMs = this.#owner.now();
      if (replica.state === 'draining') this.#owner.stopReplica(replica);
    }
    if (this.#waiting.size > 0) this.serve();
    if (this.#waiting.size > 0) this.#owner.rescale(this);
    else if (replica.inFlight === 0) this.#owner.becameIdle(this);
  }
}

const QUEUE_FULL = {
  maximum: { number: SERVICE_CODES.queueFull.code, why: 'all instances are busy' },
  machine: { number: SERVICE_CODES.machineFull.code, why: 'the machine has no room for another instance' },
  starting: { number: SERVICE_CODES.queueFull.code, why: 'further instances are starting' },
} as const;

/** The queue is full: the caller hears it at once, and why. */
export function queueFull(cause: keyof typeof QUEUE_FULL, waiting: number): ServiceError {
  const { number, why } = QUEUE_FULL[cause];
  return resourceExhausted(`${why} and ${waiting} calls are waiting already`, { number, retryAfterSeconds: 1 });
}

/** A maximum of 0: no waiting would help until somebody changes it. */
export function noneMayRun(label: string): ServiceError {
  const whose = label === '' ? 'of this function without a label' : `of the label ${label}`;
  return resourceExhausted(`no instance ${whose} may run: the maximum is 0`, {
    number: SERVICE_CODES.queueFull.code,
    retryAfterSeconds: 60,
  });
}

export function waitedTooLong(waitMs: number, lastFailure: Error | undefined): Error {
  const why = lastFailure ? `; the last start failed: ${lastFailure.message}` : '';
  return unavailable(`no instance was free within ${waitMs / 1000} s${why}`, {
    number: SERVICE_CODES.waitedTooLong.code,
    retryAfterSeconds: 1,
  });
}
