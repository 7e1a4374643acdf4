import { type TenantShare, TenantShares } from '../lib/tenant-shares.ts';

/**
 * The memory that the bodies of open calls take together: of those that instances have, and of those that wait for an instance. One for a
 * process, whatever the calls are for.
 */
export class OpenCallBytes {
  readonly max: number;
  readonly #shares: TenantShares | null;
  #taken = 0;

  /** `maxOfTenant`: the bytes that the calls of one tenant may take; null: no limit per tenant. */
  constructor(max: number, maxOfTenant: number | null = null) {
    this.max = max;
    this.#shares = maxOfTenant === null ? null : new TenantShares(maxOfTenant);
  }

  get taken(): number {
    return this.#taken;
  }

  /** The part of a tenant, for a caller that takes often; to be released once. null: no limit per tenant. */
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
