import { messageOf, ServiceError } from '../core/error.ts';
import type { InstanceLog } from './contract.ts';

/** How long the same failure of the same thing is not logged again. */
const QUIET_MS = 60_000;

interface Logged {
  readonly reason: string;
  readonly untilMs: number;
}

/**
 * Failures that come again and again, one each time that something is looked at. Logs a failure when it is new or has another reason, else once a
 * minute, and its end.
 */
export class RepeatedFailures {
  readonly #log: InstanceLog;
  readonly #now: () => number;
  readonly #logged = new Map<string, Logged>();

  constructor(log: InstanceLog, now: () => number) {
    this.#log = log;
    this.#now = now;
  }

  /** `key` names the thing. An error that nobody expected is logged with its trace. */
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

  /** Things go without ever passing: drops those that have been quiet for long. */
  sweep(): void {
    const nowMs = this.#now();
    for (const [key, { untilMs }] of this.#logged) if (nowMs >= untilMs) this.#logged.delete(key);
  }
}
