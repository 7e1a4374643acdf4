import type { Lease } from './group.ts';
import type { Clock } from './policy.ts';

/** Time that a handler may take to end after its caller has left. Afterwards its instance is replaced. */
const LEFT_BEHIND_MS = 2_000;

/**
 * Slot of a call whose caller has left. The slot is released when the handler has really ended; otherwise the
 * next call would wait behind it. A handler that ignores the cancellation costs its instance.
 */
export class AbandonedCall {
  readonly #lease: Lease;
  readonly #clock: Clock;
  #cancelTimer: (() => void) | undefined;
  #hasEnded = false;

  constructor(lease: Lease, clock: Clock) {
    this.#lease = lease;
    this.#clock = clock;
  }

  /** Also fires when the instance dies, so the slot is released as failed. */
  readonly onEnd = (): void => {
    this.#hasEnded = true;
    this.#cancelTimer?.();
    if (this.#cancelTimer) this.#lease.release('failed');
  };

  wait(): void {
    if (this.#hasEnded) this.#lease.release('failed');
    else this.#cancelTimer = this.#clock.after(LEFT_BEHIND_MS, () => this.#lease.release('replace'));
  }
}
