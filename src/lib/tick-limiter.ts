/**
 * Limits how many callers begin per turn of the event loop, in order of arrival. Other work then waits for no
 * more callers than that.
 */
export class TickLimiter {
  readonly #inOne: number;
  readonly #waiting: (() => void)[] = [];
  #isTurning = false;

  constructor(inOne: number) {
    this.#inOne = inOne;
  }

  /** Resolves when the caller may begin. */
  async next(): Promise<void> {
    await new Promise<void>(resolve => {
      this.#waiting.push(resolve);
      if (!this.#isTurning) this.#turn();
    });
  }

  #turn(): void {
    this.#isTurning = true;
    setImmediate(() => {
      for (const begin of this.#waiting.splice(0, this.#inOne)) begin();
      this.#isTurning = false;
      if (this.#waiting.length > 0) this.#turn();
    });
  }
}
