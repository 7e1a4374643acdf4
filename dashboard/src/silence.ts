/** How often it is looked whether anything came. */
const LOOK_MS = 5000;

/**
 * Tells when nothing was heard for too long: a connection that is cut without a word never ends by itself. It goes by the time of day, which
 * runs on while the machine sleeps.
 */
export class SilenceWatch {
  #heardAt = Date.now();
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(mostMs: number, onSilence: () => void) {
    this.#timer = setInterval(() => {
      // A clock that was put back says nothing about the time since.
      if (Math.abs(Date.now() - this.#heardAt) <= mostMs) return;
      this.end();
      onSilence();
    }, LOOK_MS);
  }

  heard(): void {
    this.#heardAt = Date.now();
  }

  end(): void {
    clearInterval(this.#timer);
  }
}
