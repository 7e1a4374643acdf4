/** Waits for a silent instance or driver, in milliseconds. */
export interface SilenceTimes {
  /** Time to find the reason of a lost connection: the sandbox's exit, or a new connection to the sandbox. */
  readonly findOutMs: number;
  /** Time that calls wait for an instance whose driver does not know its state; then the calls fail. */
  readonly unknownMs: number;
  /** Bound of an attempt to reach an instance in an unknown state, and the pause before the next attempt. */
  readonly pollMs: number;
  readonly pollPauseMs: number;
  /** Pause before the service retries a driver that did not answer. */
  readonly awayRetryMs: number;
}

export const SILENCE_TIMES: SilenceTimes = {
  findOutMs: 1_000,
  unknownMs: 4_000,
  pollMs: 5_000,
  pollPauseMs: 1_000,
  awayRetryMs: 5_000,
};
