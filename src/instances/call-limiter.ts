import type { ServiceError } from '../core/error.ts';
import type { TenantShare } from '../lib/byte-budgets.ts';
import { endsWithin } from '../lib/deadline.ts';
import type { OpenCallBytes } from './open-call-bytes.ts';
import { openCallsFull, tooManyWaiting } from './refusals.ts';

/**
 * Limits and counts of the open calls of instances. The agents share one limiter, and the instances of
 * functions share another.
 */
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

  /**
   * Returns why an instance must refuse a call with this body, or undefined if it may take the call.
   * `waiting` calls wait in the instance, and `unsentBytes` are not sent to it yet.
   */
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
