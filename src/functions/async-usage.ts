import { SERVICE_CODES } from '../core/codes.ts';
import { resourceExhausted } from '../core/error.ts';
import { Counter } from '../lib/counter.ts';

export interface UsageBounds {
  /** Calls that wait or run: over all tenants, and per tenant. */
  readonly maxOpen: number;
  readonly maxOpenPerTenant: number;
  /** Bytes on disk, over all tenants and per tenant: events of open calls, and kept results. */
  readonly maxBytes: number;
  readonly maxBytesPerTenant: number;
}

/** Counts the open asynchronous calls and their bytes on disk, and refuses calls above the bounds. */
export class AsyncUsage {
  readonly #bounds: UsageBounds;
  #open = 0;
  #bytes = 0;
  readonly #openOf = new Counter();
  readonly #bytesOf = new Counter();

  constructor(bounds: UsageBounds) {
    this.#bounds = bounds;
  }

  /** Fails with `resource_exhausted` (150429). */
  check(tenant: string, bytes: number): void {
    const { maxOpen, maxOpenPerTenant, maxBytes, maxBytesPerTenant } = this.#bounds;
    if (this.#open >= maxOpen || this.#openOf.get(tenant) >= maxOpenPerTenant) {
      throw resourceExhausted('too many asynchronous calls are waiting', {
        number: SERVICE_CODES.queueFull.code,
        retryAfterSeconds: 1,
      });
    }
    if (this.#bytes + bytes > maxBytes || this.#bytesOf.get(tenant) + bytes > maxBytesPerTenant) {
      throw resourceExhausted('asynchronous calls and their kept results use all of their storage', {
        number: SERVICE_CODES.queueFull.code,
        retryAfterSeconds: 60,
      });
    }
  }

  opened(tenant: string): void {
    this.#open += 1;
    this.#openOf.add(tenant);
  }

  closed(tenant: string): void {
    this.#open -= 1;
    this.#openOf.add(tenant, -1);
  }

  stored(tenant: string, bytes: number): void {
    this.#bytes += bytes;
    this.#bytesOf.add(tenant, bytes);
  }

  /** Replaces the counted bytes with the sums of the database. */
  setStored(bytesOf: readonly { readonly tenant: string; readonly bytes: number }[]): void {
    this.#bytes = 0;
    this.#bytesOf.clear();
    for (const { tenant, bytes } of bytesOf) this.stored(tenant, bytes);
  }
}
