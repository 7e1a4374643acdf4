/** Bounds of open calls, and the count of those that are open; one for all instances of this process. */
export class CallRoom {
  readonly maxWaitingCalls: number;
  readonly maxBytes: number;
  #calls = 0;
  #bytes = 0;
  #onIdle: (() => void) | undefined;

  constructor(bounds: { readonly maxWaitingCalls: number; readonly maxBytes: number }) {
    this.maxWaitingCalls = bounds.maxWaitingCalls;
    this.maxBytes = bounds.maxBytes;
  }

  get openCalls(): number {
    return this.#calls;
  }

  /** Whether a call with this body may be taken by an instance of which `waiting` calls wait and `unsentBytes` are unsent. */
  hasPlace(waiting: number, unsentBytes: number, bodyBytes: number): boolean {
    return (
      waiting < this.maxWaitingCalls &&
      this.#bytes + bodyBytes <= this.maxBytes &&
      unsentBytes + bodyBytes <= this.maxBytes
    );
  }

  enter(bodyBytes: number): void {
    this.#calls++;
    this.#bytes += bodyBytes;
  }

  leave(bodyBytes: number): void {
    this.#calls--;
    this.#bytes -= bodyBytes;
    if (this.#calls === 0) this.#onIdle?.();
  }

  /** Resolves once no call is open, or after `timeoutMs`. */
  async idle(timeoutMs: number): Promise<void> {
    if (this.#calls === 0 || timeoutMs <= 0) return;
    await new Promise<void>(resolve => {
      const timer = setTimeout(resolve, timeoutMs);
      this.#onIdle = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#onIdle = undefined;
  }
}
