/**
 * The signal of a call: an `AbortSignal`, or a `CallController`.
 * A signal that supports interrupts notifies its listeners of each one, with the reason `interrupt`. It is
 * not `aborted` by an interrupt.
 */
export interface CallSignal {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/**
 * A `CallSignal` with the methods that fire it.
 * A listener on an `AbortSignal` costs as much as the rest of a call's bookkeeping, and such a signal fires
 * only once.
 * The listeners are in a list: a long-lived `Set` that changes with every call keeps finished calls from
 * garbage collection.
 */
export class CallController implements CallSignal {
  aborted = false;
  reason: unknown;
  #listeners: (() => void)[] = [];

  addEventListener(_type: 'abort', listener: () => void): void {
    if (!this.#listeners.includes(listener)) this.#listeners.push(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    const at = this.#listeners.lastIndexOf(listener);
    if (at < 0) return;
    // Usually it is the only listener.
    if (at === this.#listeners.length - 1) this.#listeners.pop();
    else this.#listeners.splice(at, 1);
  }

  /** Notifies the listeners for the last time. Does nothing when called again. */
  abort(reason?: unknown): void {
    if (this.aborted) return;
    this.aborted = true;
    this.reason = reason;
    const listeners = this.#listeners;
    this.#listeners = [];
    for (const listener of listeners) listener();
  }

  /** Notifies the listeners without an abort. Does nothing after `abort`. */
  interrupt(): void {
    if (this.aborted) return;
    this.reason = 'interrupt';
    // Listeners may remove themselves while they are called.
    for (const listener of [...this.#listeners]) listener();
  }
}
