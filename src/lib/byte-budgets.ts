/** A tenant's share of a common resource. A frequent user keeps it, to avoid look-ups. */
export interface TenantShare {
  fits(amount: number): boolean;
  take(amount: number): void;
  give(amount: number): void;
  /** Releases the share for this holder. Taken amounts may be given back later. */
  release(): void;
}

/**
 * Bounds the amount that each tenant takes, so that no tenant takes everything. Keeps state only for tenants
 * with a holder or an amount, since tokens can name any number of tenants.
 */
export class TenantShares {
  readonly #max: number;
  readonly #shares = new Map<string, CountedShare>();

  /** `max`: the most that one tenant may take. */
  constructor(max: number) {
    this.#max = max;
  }

  /** Number of tenants with state. */
  get size(): number {
    return this.#shares.size;
  }

  /** Returns the share of a tenant, which all callers have in common. Each caller releases it once. */
  of(tenant: string): TenantShare {
    let share = this.#shares.get(tenant);
    if (share === undefined) {
      share = new CountedShare(this.#max, () => this.#shares.delete(tenant));
      this.#shares.set(tenant, share);
    }
    share.holders += 1;
    return share;
  }
}

class CountedShare implements TenantShare {
  readonly #max: number;
  readonly #onUnused: () => void;
  #taken = 0;
  holders = 0;

  constructor(max: number, onUnused: () => void) {
    this.#max = max;
    this.#onUnused = onUnused;
  }

  fits(amount: number): boolean {
    return this.#taken + amount <= this.#max;
  }

  take(amount: number): void {
    this.#taken += amount;
  }

  give(amount: number): void {
    this.#taken -= amount;
    this.#look();
  }

  release(): void {
    this.holders -= 1;
    this.#look();
  }

  #look(): void {
    if (this.holders === 0 && this.#taken === 0) this.#onUnused();
  }
}

/** Something that holds bytes for a peer, which may be slow on purpose. */
export interface Holder {
  /** Releases the held bytes at once, because other holders need memory. Must not throw. */
  giveUp(): void;
}

/**
 * Bounds the memory that many holders use together. Above the bound, the holder with the most bytes times
 * time gives up, then the next one, until the rest fits. Holders with few bytes or a short time are safe.
 */
export class HeldBytes {
  readonly #maxBytes: number;
  readonly #held = new Map<Holder, { bytes: number; readonly sinceMs: number }>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Sets the number of bytes that `holder` holds from now on. Any holder may have to give up, including this
   * one.
   */
  hold(holder: Holder, bytes: number): void {
    const held = this.#held.get(holder);
    this.#bytes += bytes - (held?.bytes ?? 0);
    if (held) held.bytes = bytes;
    else this.#held.set(holder, { bytes, sinceMs: performance.now() });
    while (this.#bytes > this.#maxBytes) this.#giveUp();
  }

  release(holder: Holder): void {
    const held = this.#held.get(holder);
    if (held === undefined) return;
    this.#held.delete(holder);
    this.#bytes -= held.bytes;
  }

  #giveUp(): void {
    const nowMs = performance.now();
    let worst: Holder | undefined;
    let worstScore = -1;
    for (const [holder, { bytes, sinceMs }] of this.#held) {
      const score = bytes * (nowMs - sinceMs);
      if (score <= worstScore) continue;
      worst = holder;
      worstScore = score;
    }
    if (worst === undefined) return;
    this.release(worst);
    worst.giveUp();
  }
}
