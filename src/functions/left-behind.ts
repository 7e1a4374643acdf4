import type { Lease } from './group.ts';
import type { ServiceClock } from './policy.ts';

/** How long a handler whose caller left may take to heed that; then its instance is replaced. */
const LEFT_BEHIND_MS = 2_000;

/**
 * The slot of a call whose caller left. It is given back when the handler has really ended, or its next call would wait behind the
 * old one; a handler that does not heed the cancellation costs its instance.
 */
export class LeftBehind {
  readonly #lease: Lease;
  readonly #clock: ServiceClock;
  #cancelTimer: (() => void) | undefined;
  #hasEnded = false;

  constructor(lease: Lease, clock: ServiceClock) {
    this.#lease = lease;
    this.#clock = clock;
  }

  /** It may as well be the end of the instance: nothing good is said of that. */
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
