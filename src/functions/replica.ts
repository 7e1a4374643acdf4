import type { FunctionInstance } from './function-instance.ts';

/** Session that is bound to a replica: all its calls go there while the replica lives. */
export interface Session {
  readonly id: string;
  readonly replica: VersionReplica;
  /** Slots that are kept for the session; 0 once `ttlMs` has passed since its last call. */
  reserved: number;
  /** Calls that run in the session's reserved slots. */
  inUse: number;
  /** All running calls of the session, in reserved and shared slots. */
  running: number;
  ttlMs: number;
  lastUsedMs: number;
}

/**
 * Instance in a group, with the account of its slots. Invariant: `sharedInUse` + the sum of `reserved` ≤
 * `capacity`, so at most `capacity` calls run on it.
 */
export class VersionReplica {
  readonly capacity: number;
  state: 'starting' | 'ready' | 'draining' | 'stopping' = 'starting';
  instance: FunctionInstance | undefined;
  sharedInUse = 0;
  readonly sessions = new Map<string, Session>();
  /** Sum of `reserved` over its sessions. */
  reservedSlots = 0;
  /** Sum of `inUse` over its sessions. */
  reservedInUse = 0;
  idleSinceMs = 0;
  readyAtMs = 0;
  /** True once a call on it has ended well. A later death then does not count as a failed start. */
  servedWell = false;
  /** True once a handler on it did not end when it should have. */
  isStuck = false;

  constructor(capacity: number) {
    this.capacity = capacity;
  }

  get inFlight(): number {
    return this.sharedInUse + this.reservedInUse;
  }

  /** Slots that are neither in use nor reserved. */
  get free(): number {
    return this.capacity - this.sharedInUse - this.reservedSlots;
  }

  reserve(session: Session, slots: number): void {
    this.reservedSlots += slots - session.reserved;
    session.reserved = slots;
  }
}
