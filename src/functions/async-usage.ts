import { SERVICE_CODES } from '../core/codes.ts';
import { resourceExhausted } from '../core/error.ts';

export interface UsageBounds {
  /** Calls that wait or run, over all tenants, and of one tenant. */
  readonly maxOpen: number;
  readonly maxOpenPerTenant: number;
  /** Bytes on the disk: events of open calls and what is kept of those that are over, over all tenants, and of one tenant. */
  readonly maxBytes: number;
  readonly maxBytesPerTenant: number;
}

/** How much asynchronous calls take, and whether one more may come. */
export class AsyncUsage {
  readonly #bounds: UsageBounds;
  #open = 0;
  #bytes = 0;
  readonly #openOf = new Map<string, number>();
  readonly #bytesOf = new Map<string, number>();

  constructor(bounds: UsageBounds) {
    this.#bounds = bounds;
  }

  /** Fails with `resource_exhausted` (150429). */
  check(tenant: string, bytes: number): void {
    const { maxOpen, maxOpenPerTenant, maxBytes, maxBytesPerTenant } = this.#bounds;
    if (this.#open >= maxOpen || (this.#openOf.get(tenant) ?? 0) >= maxOpenPerTenant) {
      throw resourceExhausted('too many asynchronous calls are waiting', {
        number: SERVICE_CODES.queueFull.code,
        retryAfterSeconds: 1,
      });
    }
    if (this.#bytes + bytes > maxBytes || (this.#bytesOf.get(tenant) ?? 0) + bytes > maxBytesPerTenant) {
      throw resourceExhausted('asynchronous calls and their kept results take all the room that they may have', {
        number: SERVICE_CODES.queueFull.code,
        retryAfterSeconds: 60,
      });
    }
  }

  opened(tenant: string): void {
    this.#open += 1;
    add(this.#openOf, tenant, 1);
  }

  closed(tenant: string): void {
    this.#open -= 1;
    add(this.#openOf, tenant, -1);
  }

  stored(tenant: string, bytes: number): void {
    this.#bytes += bytes;
    add(this.#bytesOf, tenant, bytes);
  }

  /** The count of the store replaces what was counted here. */
  setStored(bytesOf: readonly { readonly tenant: string; readonly bytes: number }[]): void {
    this.#bytes = 0;
    this.#bytesOf.clear();
    for (const { tenant, bytes } of bytesOf) this.stored(tenant, bytes);
  }
}

function add(counts: Map<string, number>, key: string, change: number): void {
  const count = (counts.get(key) ?? 0) + change;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}
