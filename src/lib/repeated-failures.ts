import { messageOf, ServiceError } from '../core/error.ts';
import type { Log } from './log.ts';

/** Time during which the same failure of the same subject is not logged again. */
const QUIET_MS = 60_000;

interface Logged {
  readonly reason: string;
  readonly untilMs: number;
}

/**
 * Log filter for failures that recur with each check. Logs a failure when it is new or its reason changed,
 * otherwise once a minute. Also logs the first success after a failure.
 */
export class RepeatedFailures {
  readonly #log: Log;
  readonly #now: () => number;
  readonly #logged = new Map<string, Logged>();

  constructor(log: Log, now: () => number) {
    this.#log = log;
    this.#now = now;
  }

  /**
   * Logs a failure of the subject `key`. An error other than a `ServiceError` is logged with its stack trace.
   */
  failed(key: string, error: unknown, fields: object, message: string): void {
    const reason = messageOf(error);
    const nowMs = this.#now();
    const last = this.#logged.get(key);
    if (last?.reason === reason && nowMs < last.untilMs) return;
    this.#logged.set(key, { reason, untilMs: nowMs + QUIET_MS });
    const known = error instanceof ServiceError;
    this.#log.warn({ ...fields, ...(known ? { reason } : { err: error }) }, message);
  }

  passed(key: string, fields: object, message: string): void {
    if (this.#logged.delete(key)) this.#log.info(fields, message);
  }

  /** Drops entries whose quiet time is over: a removed subject never calls `passed`. */
  sweep(): void {
    const nowMs = this.#now();
    for (const [key, { untilMs }] of this.#logged) if (nowMs >= untilMs) this.#logged.delete(key);
  }
}
