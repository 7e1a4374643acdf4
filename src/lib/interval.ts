/**
 * Repeats work: each round begins `intervalMs` after the end of the previous one, the first one `intervalMs`
 * after `start`. Two rounds never overlap, and the timer does not keep the process alive. `round` must not
 * reject; a long one should check `isClosed`.
 */
export class Interval {
  readonly #intervalMs: number;
  readonly #round: () => Promise<void>;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #isClosed = false;

  constructor(intervalMs: number, round: () => Promise<void>) {
    this.#intervalMs = intervalMs;
    this.#round = round;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  start(): void {
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => {
      this.#running = this.#round().finally(() => this.start());
    }, this.#intervalMs).unref();
  }

  /** Starts no further round; resolves when none runs. May be called again. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#running;
  }
}
