import { Counter } from './counter.ts';

/**
 * Bounds an amount, such as bytes or open reads, in total and per tenant, so that no tenant takes everything.
 * Keeps state only for tenants with an amount, since tokens can name any number of tenants.
 */
export class TenantBudget {
  readonly max: number;
  readonly #maxOfTenant: number | null;
  readonly #ofTenant = new Counter();
  #taken = 0;

  /** `maxOfTenant`: the most that one tenant may take. null: no limit per tenant. */
  constructor(max: number, maxOfTenant: number | null = null) {
    this.max = max;
    this.#maxOfTenant = maxOfTenant;
  }

  get taken(): number {
    return this.#taken;
  }

  fits(tenant: string, amount: number): boolean {
    if (!this.fitsInTotal(amount)) return false;
    return this.#maxOfTenant === null || this.#ofTenant.get(tenant) + amount <= this.#maxOfTenant;
  }

  /** Returns true if `amount` fits, whatever the tenant has taken. */
  fitsInTotal(amount: number): boolean {
    return this.#taken + amount <= this.max;
  }

  acquire(tenant: string, amount: number): void {
    this.#taken += amount;
    if (this.#maxOfTenant !== null) this.#ofTenant.add(tenant, amount);
  }

  release(tenant: string, amount: number): void {
    this.#taken -= amount;
    if (this.#maxOfTenant !== null) this.#ofTenant.add(tenant, -amount);
  }
}

/** Something that holds bytes for a peer, which may be slow on purpose. */
export interface Holder {
  /** Releases the held bytes at once, because other holders need memory. Must not throw. */
  abandon(): void;
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
    worst.abandon();
  }
}
