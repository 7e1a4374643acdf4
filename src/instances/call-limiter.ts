import type { ServiceError } from '../core/error.ts';
import { endsWithin } from '../lib/deadline.ts';
import type { TenantShare } from '../lib/tenant-shares.ts';
import type { OpenCallBytes } from './open-call-bytes.ts';
import { openCallsFull, tooManyWaiting } from './refusals.ts';

/** Bounds of the calls that instances have, and the count of those that are open; one for all agents, one for all instances of functions. */
export class CallLimiter {
  readonly maxWaitingCalls: number;
  readonly #bytes: OpenCallBytes;
  #calls = 0;
  #onIdle: (() => void) | undefined;

  constructor(bounds: { readonly maxWaitingCalls: number; readonly bytes: OpenCallBytes }) {
    this.maxWaitingCalls = bounds.maxWaitingCalls;
    this.#bytes = bounds.bytes;
  }

  shareOf(tenant: string): TenantShare | null {
    return this.#bytes.shareOf(tenant);
  }

  get openCalls(): number {
    return this.#calls;
  }

  /** Why a call with this body may not be taken by an instance of which `waiting` calls wait and `unsentBytes` are unsent; undefined: it may. */
  refusal(
    waiting: number,
    unsentBytes: number,
    bodyBytes: number,
    share: TenantShare | null = null,
  ): ServiceError | undefined {
    if (waiting >= this.maxWaitingCalls) return tooManyWaiting();
    const bytes = this.#bytes;
    return bytes.fits(bodyBytes, share) && unsentBytes + bodyBytes <= bytes.max ? undefined : openCallsFull();
  }

  enter(bodyBytes: number, share: TenantShare | null = null): void {
    this.#calls++;
    this.#bytes.take(bodyBytes, share);
  }

  leave(bodyBytes: number, share: TenantShare | null = null): void {
    this.#calls--;
    this.#bytes.give(bodyBytes, share);
    if (this.#calls === 0) this.#onIdle?.();
  }

  /** Resolves once no call is open, or after `timeoutMs`. */
  async idle(timeoutMs: number): Promise<void> {
    if (this.#calls === 0 || timeoutMs <= 0) return;
    const idle = new Promise<void>(resolve => {
      this.#onIdle = resolve;
    });
    await endsWithin(idle, timeoutMs);
    this.#onIdle = undefined;
  }
}
