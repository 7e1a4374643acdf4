import type { CallSignal } from '../runtime/call.ts';

/**
 * Signal of a session's call: fires when the caller leaves and on each interrupt. An `AbortController` cannot
 * do this, because it fires once. A handler may continue after an interrupt, and then be interrupted again or
 * lose its caller.
 */
export class SessionSignal implements CallSignal {
  /** True once the caller has left. */
  aborted = false;
  reason: unknown;
  readonly #caller: CallSignal | undefined;
  readonly #onLeave = () => this.#leave();
  readonly #listeners = new Set<() => void>();

  /** Listens to `caller` until `end`. */
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

  /** Notifies the listeners and leaves `aborted` false. Does nothing once the caller has left. */
  interrupt(): void {
    if (this.aborted) return;
    this.reason = 'interrupt';
    this.#tell();
  }

  /** Stops listening to the caller, because the call has ended. */
  end(): void {
    this.#caller?.removeEventListener('abort', this.#onLeave);
  }

  #leave(): void {
    this.aborted = true;
    this.reason = this.#caller?.reason;
    this.#tell();
  }

  #tell(): void {
    // Listeners may remove themselves while they are called.
    for (const listener of [...this.#listeners]) listener();
  }
}
