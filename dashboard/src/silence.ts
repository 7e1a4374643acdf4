/** Interval between checks. */
const CHECK_MS = 5000;

/**
 * Calls `onSilence` when no message has arrived for `mostMs`. A connection that is cut without a packet never
 * ends by itself. Uses the time of day, which continues while the machine sleeps.
 */
export class SilenceWatch {
  #heardAt = Date.now();
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(mostMs: number, onSilence: () => void) {
    this.#timer = setInterval(() => {
      // A clock that was set back also ends the wait.
      if (Math.abs(Date.now() - this.#heardAt) <= mostMs) return;
      this.end();
      onSilence();
    }, CHECK_MS);
  }

  heard(): void {
    this.#heardAt = Date.now();
  }

  end(): void {
    clearInterval(this.#timer);
  }
}
