import { SERVICE_CODES } from '../core/codes.ts';
import { resourceExhausted, type ServiceError, unavailable } from '../core/error.ts';
import type { Member, ServiceInstance, Session } from './member.ts';
import type { GroupKey, ServicePolicy, SessionRequest } from './policy.ts';

/** A place on an instance, taken by one call until `release`. */
export interface Lease {
  readonly instance: ServiceInstance;
  /** How long the call waited for it, milliseconds. */
  readonly queueMs: number;
  /** True when the instance was started after the call had arrived. */
  readonly cold: boolean;
  /**
   * Gives the place back, once. `done`: the instance is good. `replace`: it may be stuck (a handler that timed out), so it gets
   * no more calls and ends when its last one has.
   */
  release(outcome: 'done' | 'replace'): void;
}

interface Waiter {
  readonly session: SessionRequest | undefined;
  readonly sinceMs: number;
  /** Places that it needs on one instance. */
  readonly places: number;
  grant(lease: Lease): void;
  fail(error: Error): void;
}

/** What a group asks of the service that it belongs to. */
export interface GroupOwner {
  readonly policy: ServicePolicy;
  now(): number;
  /** Something changed that may call for more or fewer instances. */
  rescale(group: Group): void;
  /** A member of the group has no call any more; cheap, since it comes after every call of a quiet service. */
  becameIdle(group: Group): void;
  stopMember(member: Member): void;
  /** Whether an instance of the group, though calls wait for it, makes room for others whose calls have waited longer. */
  givesWay(group: Group): boolean;
}

/** Sessions whose places were given back are remembered for their instance; above this many the oldest are forgotten. */
const MAX_REMEMBERED_SESSIONS = 10_000;

/**
 * The interchangeable instances of one version, and the calls that wait for a place on one of them.
 *
 * Pure bookkeeping: it starts nothing and knows no time but the owner's. Waiting calls are served strictly in order, except those
 * that are bound to one instance by their session: they wait for that instance alone.
 */
export class Group {
  readonly key: GroupKey;
  readonly members: Member[] = [];
  readonly sessions = new Map<string, Session>();
  readonly #owner: GroupOwner;
  readonly #waiting = new Set<Waiter>();
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
    for (const waiter of this.#waiting) return waiter.sinceMs;
    return undefined;
  }

  /** Instances that count against the maximum: everything that is not gone. */
  get size(): number {
    return this.members.length;
  }

  count(state: Member['state']): number {
    let count = 0;
    for (const member of this.members) if (member.state === state) count += 1;
    return count;
  }

  /** A place now, or undefined when the call must wait. Never overtakes a call that waits for any instance. */
  tryPlace(session: SessionRequest | undefined, sinceMs: number): Lease | undefined {
    if (session) return this.#placeSession(session, sinceMs, this.#hasUnbound());
    if (this.isBusy) return undefined;
    const member = this.#leastLoaded(1);
    return member && this.#takeShared(member, undefined, sinceMs);
  }

  /** Waits for a place until it is granted, failed, or called off with the returned function. */
  wait(
    session: SessionRequest | undefined,
    sinceMs: number,
    grant: (lease: Lease) => void,
    fail: (error: Error) => void,
  ) {
    const waiter: Waiter = { session, sinceMs, places: this.#placesOf(session), grant, fail };
    this.#waiting.add(waiter);
    if (session) this.#waitingForSession += 1;
    return () => {
      if (this.#leave(waiter)) this.#owner.rescale(this);
    };
  }

  /** Gives free places to those who wait, oldest first. */
  serve(): void {
    let blocked = false;
    for (const waiter of this.#waiting) {
      const bound = this.#isBound(waiter.session);
      if (blocked && !bound) continue;
      const lease = waiter.session
        ? this.#placeSession(waiter.session, waiter.sinceMs, false)
        : this.#placePlain(waiter.sinceMs);
      if (lease) {
        this.#leave(waiter);
        waiter.grant(lease);
      } else if (!bound) {
        // Nobody behind it may take what it waits for, or a large request would wait for ever.
        blocked = true;
        if (this.#waitingForSession === 0) return;
      }
    }
  }

  /** Ends the wait of everybody who is not bound to a living instance. */
  failWaiting(error: Error): void {
    for (const waiter of [...this.#waiting]) {
      if (this.#isBound(waiter.session)) continue;
      this.#leave(waiter);
      waiter.fail(error);
    }
  }

  /** Places that waiting calls need and that no living instance can promise them; `dueMs` leaves out those that came later, null nobody. */
  demandInstances(dueMs: number | null): number {
    const { concurrency } = this.#owner.policy;
    if (this.#waitingForSession === 0 && dueMs === null) return Math.ceil(this.#waiting.size / concurrency);
    let places = 0;
    const sessions = new Map<string, { kept: number; calls: number }>();
    for (const { session, sinceMs, places: wanted } of this.#waiting) {
      if (dueMs !== null && sinceMs > dueMs) break;
      if (session === undefined) places += 1;
      else if (!this.#isBound(session)) {
        const { kept, calls } = sessions.get(session.id) ?? { kept: 0, calls: 0 };
        sessions.set(session.id, { kept: Math.max(kept, wanted), calls: calls + 1 });
      }
    }
    // All calls of one session go to one instance, however many they are.
    for (const { kept, calls } of sessions.values()) places += Math.min(concurrency, Math.max(kept, calls));
    return Math.ceil(places / concurrency);
  }

  /** A member left: its sessions may bind to another. */
  forget(member: Member): void {
    const index = this.members.indexOf(member);
    if (index >= 0) this.members.splice(index, 1);
    this.#unbindAll(member);
  }

  /** No call of its sessions comes to it any more. One that has been bound to another member meanwhile stays there. */
  #unbindAll(member: Member): void {
    for (const session of member.sessions.values()) {
      if (this.sessions.get(session.id) === session) this.sessions.delete(session.id);
    }
    member.sessions.clear();
  }

  /** Gives back the places of sessions whose time is over; true when there were any. */
  expireSessions(): boolean {
    const now = this.#owner.now();
    let expired = false;
    for (const session of this.sessions.values()) {
      if (session.reserved === 0 || session.running > 0 || session.lastUsedMs + session.ttlMs > now) continue;
      session.member.reserve(session, 0);
      expired = true;
    }
    return expired;
  }

  /** When the next session's time is over; undefined when none keeps places. */
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
    session.member.sessions.delete(id);
    // Places in use become shared ones until their calls end.
    session.member.sharedInUse += session.inUse;
    session.member.reservedInUse -= session.inUse;
    session.member.reserve(session, 0);
    session.inUse = 0;
    this.serve();
    this.#owner.rescale(this);
    return true;
  }

  #placesOf(session: SessionRequest | undefined): number {
    if (!session) return 1;
    return session.concurrency === -1 ? this.#owner.policy.concurrency : Math.max(1, session.concurrency);
  }

  #isBound(request: SessionRequest | undefined): boolean {
    return request !== undefined && this.sessions.get(request.id)?.member.state === 'ready';
  }

  /** Whether a call waits for whichever instance is free first: those that come wait behind it. */
  get isBusy(): boolean {
    return this.#waiting.size > 0 && this.#hasUnbound();
  }

  #leave(waiter: Waiter): boolean {
    if (!this.#waiting.delete(waiter)) return false;
    if (waiter.session) this.#waitingForSession -= 1;
    return true;
  }

  #hasUnbound(): boolean {
    if (this.#waitingForSession === 0) return this.#waiting.size > 0;
    for (const waiter of this.#waiting) if (!this.#isBound(waiter.session)) return true;
    return false;
  }

  #leastLoaded(places: number): Member | undefined {
    let best: Member | undefined;
    for (const member of this.members) {
      if (member.state === 'ready' && member.free >= places && (!best || member.inFlight < best.inFlight))
        best = member;
    }
    return best;
  }

  #placePlain(sinceMs: number): Lease | undefined {
    const member = this.#leastLoaded(1);
    return member && this.#takeShared(member, undefined, sinceMs);
  }

  #placeSession(request: SessionRequest, sinceMs: number, mustNotOvertake: boolean): Lease | undefined {
    const session = this.sessions.get(request.id);
    if (!session) {
      const member = mustNotOvertake ? undefined : this.#leastLoaded(this.#placesOf(request));
      return member && this.#takeReserved(this.#bind(request, member), sinceMs);
    }
    const member = session.member;
    if (member.state !== 'ready') return undefined;
    if (session.reserved === 0 && member.free >= this.#placesOf(request))
      member.reserve(session, this.#placesOf(request));
    session.ttlMs = request.ttlMs;
    if (session.inUse < session.reserved) return this.#takeReserved(session, sinceMs);
    return member.free > 0 ? this.#takeShared(member, session, sinceMs) : undefined;
  }

  #bind(request: SessionRequest, member: Member): Session {
    const session: Session = {
      id: request.id,
      member,
      reserved: 0,
      inUse: 0,
      running: 0,
      ttlMs: request.ttlMs,
      lastUsedMs: this.#owner.now(),
    };
    member.reserve(session, this.#placesOf(request));
    member.sessions.set(session.id, session);
    this.sessions.set(session.id, session);
    if (this.sessions.size > MAX_REMEMBERED_SESSIONS) this.#forgetOldestSession();
    return session;
  }

  #forgetOldestSession(): void {
    for (const session of this.sessions.values()) {
      if (session.running > 0 || session.reserved > 0) continue;
      this.sessions.delete(session.id);
      session.member.sessions.delete(session.id);
      return;
    }
  }

  #takeShared(member: Member, session: Session | undefined, sinceMs: number): Lease {
    member.sharedInUse += 1;
    if (session) session.running += 1;
    return this.#lease(member, session, sinceMs, () => {
      member.sharedInUse -= 1;
    });
  }

  #takeReserved(session: Session, sinceMs: number): Lease {
    const member = session.member;
    session.inUse += 1;
    session.running += 1;
    member.reservedInUse += 1;
    return this.#lease(member, session, sinceMs, () => {
      // After `endSession` the place had become a shared one.
      if (session.inUse > 0) {
        session.inUse -= 1;
        member.reservedInUse -= 1;
      } else member.sharedInUse -= 1;
    });
  }

  #lease(member: Member, session: Session | undefined, sinceMs: number, giveBack: () => void): Lease {
    const instance = member.instance;
    if (!instance) throw new Error('a place on an instance that is not there');
    let released = false;
    return {
      instance,
      queueMs: this.#owner.now() - sinceMs,
      cold: member.readyAtMs >= sinceMs,
      release: outcome => {
        if (released) return;
        released = true;
        giveBack();
        if (session) {
          session.running -= 1;
          session.lastUsedMs = this.#owner.now();
          if (session.running === 0 && session.ttlMs === 0) member.reserve(session, 0);
        }
        this.#released(member, outcome);
      },
    };
  }

  #released(member: Member, outcome: 'done' | 'replace'): void {
    if (outcome === 'done') {
      this.failures = 0;
      member.servedWell = true;
    }
    if (outcome === 'replace') member.isStuck = true;
    const isOver = outcome === 'replace' || this.#owner.policy.oneshot;
    if (member.state === 'ready' && (isOver || (member.reservedPlaces === 0 && this.#owner.givesWay(this)))) {
      member.state = 'draining';
      this.#unbindAll(member);
    }
    if (member.inFlight === 0) {
      member.idleSinceMs = this.#owner.now();
      if (member.state === 'draining') this.#owner.stopMember(member);
    }
    if (this.#waiting.size > 0) this.serve();
    if (this.#waiting.size > 0) this.#owner.rescale(this);
    else if (member.inFlight === 0) this.#owner.becameIdle(this);
  }
}

const ROOM_FULL = {
  maximum: { number: SERVICE_CODES.queueFull.code, why: 'all instances are busy' },
  machine: { number: SERVICE_CODES.machineFull.code, why: 'the machine has no room for another instance' },
  starting: { number: SERVICE_CODES.queueFull.code, why: 'further instances are starting' },
} as const;

/** The room in which calls wait is full: tell the caller at once, and why. */
export function waitingRoomFull(cause: keyof typeof ROOM_FULL, waiting: number): ServiceError {
  const { number, why } = ROOM_FULL[cause];
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
