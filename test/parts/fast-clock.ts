import { vi } from 'vitest';

/** Real duration of a step; `STEP_OF_CLOCK_MS` is the time that the clock advances in it. */
const STEP_MS = 10;
const STEP_OF_CLOCK_MS = 100;

/**
 * A clock that runs up to ten times faster, for tests that depend on seconds. `Date` and the timers of this
 * process follow it. I/O and other threads keep their real speed.
 */
export class FastClock {
  readonly #timer: NodeJS.Timeout;

  constructor() {
    this.#timer = setInterval(() => vi.advanceTimersByTime(STEP_OF_CLOCK_MS), STEP_MS);
    vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] });
  }

  stop(): void {
    vi.useRealTimers();
    clearInterval(this.#timer);
  }
}
