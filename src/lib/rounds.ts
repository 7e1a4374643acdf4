/**
 * Work that is done again and again: each round begins `intervalMs` after the end of the one before, the first so long after `start`. Two never
 * overlap, and nothing keeps the process alive between them. `round` does not reject; one that takes long looks at `isClosed`.
 */
export class Rounds {
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

  /** None begins any more; resolves when none runs. May be called again. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#running;
  }
}
