import { RookeryError } from './error.ts';

const FIRST_MS = 200;
const LONGEST_MS = 5000;
/** Longest `Retry-After` that the client waits for; above it the method fails immediately. */
const LONGEST_WAIT_SECONDS = 60;
/** Statuses of temporary failures. */
const MOMENTARY = new Set([429, 502, 503, 504]);
/** Error code for a call that got no instance in time and so has not started (docs/reference/errors.md). */
const NO_INSTANCE = 150431;
const STARTING = 'the server is starting';

/**
 * Returns the milliseconds to wait before a retry, or null if the request must not be retried. A request that
 * may be repeated is retried after every temporary failure. Any other request is retried only if the service
 * has certainly not started it. `tried` is the number of attempts so far; `random` is from 0 to 1.
 */
export function retryAfterMs(error: unknown, tried: number, mayRepeat: boolean, random = Math.random()): number | null {
  if (!(error instanceof RookeryError)) return null;
  if (!(mayRepeat ? isMomentary(error) : hasNotBegun(error))) return null;
  const { retryAfterSeconds = 0 } = error;
  if (retryAfterSeconds > LONGEST_WAIT_SECONDS) return null;
  const pauseMs = Math.min(LONGEST_MS, FIRST_MS * 2 ** (tried - 1));
  // The random part spreads the retries of many clients that failed at the same time.
  return Math.max(retryAfterSeconds * 1000, pauseMs / 2) + (random * pauseMs) / 2;
}

function isMomentary({ status, cause }: RookeryError): boolean {
  return status === 0 ? cause !== undefined : MOMENTARY.has(status);
}

function hasNotBegun({ status, code, message, cause }: RookeryError): boolean {
  if (status === 0) return (cause as NodeJS.ErrnoException | undefined)?.code === 'ECONNREFUSED';
  return status === 429 || code === NO_INSTANCE || (status === 503 && message.startsWith(STARTING));
}

/**
 * Returns the seconds until the time in `Retry-After`, or undefined if it is absent, past or malformed. The
 * header has seconds, or a date, which some proxies send.
 */
export function secondsUntil(header: string | undefined, nowMs = Date.now()): number | undefined {
  if (header === undefined) return undefined;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - nowMs) / 1000;
  return seconds > 0 ? seconds : undefined;
}
