import { type TenantShare, TenantShares } from '../lib/byte-budgets.ts';

/**
 * Memory that the bodies of open calls occupy, both running calls and calls that wait for an instance. A
 * process has one such budget for all kinds of calls.
 */
export class OpenCallBytes {
  readonly max: number;
  readonly #shares: TenantShares | null;
  #taken = 0;

  /**
   * Creates a budget of `max` bytes. `maxOfTenant`: bytes for the calls of a tenant; null: no limit per
   * tenant.
   */
  constructor(max: number, maxOfTenant: number | null = null) {
    this.max = max;
    this.#shares = maxOfTenant === null ? null : new TenantShares(maxOfTenant);
  }

  get taken(): number {
    return this.#taken;
  }

  /**
   * Returns the share of a tenant, for callers that use it often; release it once. null: no limit per tenant.
   */
  shareOf(tenant: string): TenantShare | null {
    return this.#shares?.of(tenant) ?? null;
  }

  fits(bytes: number, share: TenantShare | null = null): boolean {
    return this.#taken + bytes <= this.max && (share === null || share.fits(bytes));
  }

  take(bytes: number, share: TenantShare | null = null): void {
    this.#taken += bytes;
    share?.take(bytes);
  }

  give(bytes: number, share: TenantShare | null = null): void {
    this.#taken -= bytes;
    share?.give(bytes);
  }
}
