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
