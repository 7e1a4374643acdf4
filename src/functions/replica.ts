/** A running instance as the service sees it: something that is there until it ends. */
export interface ServiceInstance {
  readonly id: string;
  /** Resolves with the reason, a sentence, when it ends for any cause (also after `stop`). */
  readonly ended: Promise<string>;
  /** pre_stop, end and removal. `isStuck`: a handler that should have ended may never, so it gets little time. Never rejects. */
  stop(isStuck?: boolean): Promise<void>;
}

/** A session that is bound to a replica: all its calls go there while the replica lives. */
export interface Session {
  readonly id: string;
  readonly replica: Replica;
  /** Slots that are kept for it; 0 once `ttlMs` has passed since its last call. */
  reserved: number;
  /** Calls that run in its reserved slots. */
  inUse: number;
  /** Calls of it at all, in reserved and shared slots. */
  running: number;
  ttlMs: number;
  lastUsedMs: number;
}

/**
 * One instance in a group and the book of its slots. Invariant: `sharedInUse` + the sum of `reserved` ≤ `capacity`, so no
 * more than `capacity` calls ever run on it.
 */
export class Replica {
  readonly capacity: number;
  state: 'starting' | 'ready' | 'draining' | 'stopping' = 'starting';
  instance: ServiceInstance | undefined;
  sharedInUse = 0;
  readonly sessions = new Map<string, Session>();
  /** Sum of `reserved` over its sessions. */
  reservedSlots = 0;
  /** Sum of `inUse` over its sessions. */
  reservedInUse = 0;
  idleSinceMs = 0;
  readyAtMs = 0;
  /** A call ended well on it: whatever kills it later is not its code being broken from the start. */
  servedWell = false;
  /** A handler on it did not end when it should have. */
  isStuck = false;

  constructor(capacity: number) {
    this.capacity = capacity;
  }

  get inFlight(): number {
    return this.sharedInUse + this.reservedInUse;
  }

  /** Slots that belong to nobody. */
  get free(): number {
    return this.capacity - this.sharedInUse - this.reservedSlots;
  }

  reserve(session: Session, slots: number): void {
    this.reservedSlots += slots - session.reserved;
    session.reserved = slots;
  }
}
