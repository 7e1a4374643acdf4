import type { ServiceError } from '../core/error.ts';
import type { TenantBudget } from '../lib/budgets.ts';
import { endsWithin } from '../lib/deadline.ts';
import { openCallsFull, tooManyWaiting } from './refusals.ts';

/**
 * Limits and counts of the open calls of instances. The agents share one limiter, and the instances of
 * functions share another.
 */
export class CallLimiter {
  readonly maxWaitingCalls: number;
  readonly #bytes: TenantBudget;
  #calls = 0;
  #onIdle: (() => void) | undefined;

  constructor(bounds: { readonly maxWaitingCalls: number; readonly bytes: TenantBudget }) {
    this.maxWaitingCalls = bounds.maxWaitingCalls;
    this.#bytes = bounds.bytes;
  }

  get openCalls(): number {
    return this.#calls;
  }

  /**
   * Returns why an instance must refuse a call with this body, or undefined if it may take the call.
   * `waiting` calls wait in the instance, and `unsentBytes` are not sent to it yet.
   */
  refusal(tenant: string, waiting: number, unsentBytes: number, bodyBytes: number): ServiceError | undefined {
    if (waiting >= this.maxWaitingCalls) return tooManyWaiting();
    const bytes = this.#bytes;
    return bytes.fits(tenant, bodyBytes) && unsentBytes + bodyBytes <= bytes.max ? undefined : openCallsFull();
  }

  enter(tenant: string, bodyBytes: number): void {
    this.#calls++;
    this.#bytes.acquire(tenant, bodyBytes);
  }

  release(tenant: string, bodyBytes: number): void {
    this.#calls--;
    this.#bytes.release(tenant, bodyBytes);
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
