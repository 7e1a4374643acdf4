/** One tenant's share of something that all have together. Held by whoever takes often: no look-up is left then. */
export interface TenantShare {
  fits(amount: number): boolean;
  take(amount: number): void;
  give(amount: number): void;
  /** Who holds it needs it no more. Its share may be given back later. */
  release(): void;
}

/**
 * Bounds what each tenant takes, so that no tenant has all. Exists for tenants that have something or may take something, and for no other:
 * tokens can name any number of them.
 */
export class TenantShares {
  readonly #max: number;
  readonly #shares = new Map<string, CountedShare>();

  /** `max`: what one tenant may take. */
  constructor(max: number) {
    this.#max = max;
  }

  /** How many tenants it knows. */
  get size(): number {
    return this.#shares.size;
  }

  /** The share of a tenant, one for all who ask. Each releases it once. */
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
