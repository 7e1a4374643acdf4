import type { CallSignal } from '../runtime/call.ts';

/**
 * The signal of a call of a session: its caller's, and interrupts. No `AbortController`, which aborts once: a handler may go on after an
 * interrupt, and then get another one, or lose its caller.
 */
export class SessionSignal implements CallSignal {
  /** The caller went away. */
  aborted = false;
  reason: unknown;
  readonly #caller: CallSignal | undefined;
  readonly #onLeave = () => this.#leave();
  readonly #listeners = new Set<() => void>();

  /** Holds on to `caller` until `end`. */
  constructor(caller: CallSignal | undefined) {
    this.#caller = caller;
    if (caller?.aborted) this.#leave();
    else caller?.addEventListener('abort', this.#onLeave);
  }

  addEventListener(_type: 'abort', listener: () => void): void {
    this.#listeners.add(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    this.#listeners.delete(listener);
  }

  /** Tells those who listen, and stays as it is: nothing comes after the caller. */
  interrupt(): void {
    if (this.aborted) return;
    this.reason = 'interrupt';
    this.#tell();
  }

  /** The call is over. */
  end(): void {
    this.#caller?.removeEventListener('abort', this.#onLeave);
  }

  #leave(): void {
    this.aborted = true;
    this.reason = this.#caller?.reason;
    this.#tell();
  }

  #tell(): void {
    // Who is told may let go.
    for (const listener of [...this.#listeners]) listener();
  }
}
