import { RookeryError } from './error.ts';

const FIRST_MS = 200;
const LONGEST_MS = 5000;
/** Above this the caller is told instead. */
const LONGEST_WAIT_SECONDS = 60;
/** Answers of a moment. */
const MOMENTARY = new Set([429, 502, 503, 504]);
/** The call waited for an instance in vain: it has not begun (docs/errors.md). */
const NO_INSTANCE = 150431;
const STARTING = 'the server is starting';

/**
 * How long to wait before the request is sent again, in milliseconds; null: it must not be. What may be repeated is sent again whenever that
 * could help; anything else only when the service has certainly not begun with it.
 */
export function retryAfterMs(error: unknown, tried: number, mayRepeat: boolean, random = Math.random()): number | null {
  if (!(error instanceof RookeryError)) return null;
  if (!(mayRepeat ? isMomentary(error) : hasNotBegun(error))) return null;
  const { retryAfterSeconds = 0 } = error;
  if (retryAfterSeconds > LONGEST_WAIT_SECONDS) return null;
  const pauseMs = Math.min(LONGEST_MS, FIRST_MS * 2 ** (tried - 1));
  // Many clients that were refused together do not come back together.
  return Math.max(retryAfterSeconds * 1000, pauseMs / 2) + (random * pauseMs) / 2;
}

function isMomentary({ status, cause }: RookeryError): boolean {
  return status === 0 ? cause !== undefined : MOMENTARY.has(status);
}

function hasNotBegun({ status, code, message, cause }: RookeryError): boolean {
  if (status === 0) return (cause as NodeJS.ErrnoException | undefined)?.code === 'ECONNREFUSED';
  return status === 429 || code === NO_INSTANCE || (status === 503 && message.startsWith(STARTING));
}

/** What `Retry-After` says: seconds, or a moment, which is what some say that stand before the service. */
export function secondsUntil(header: string | undefined, nowMs = Date.now()): number | undefined {
  if (header === undefined) return undefined;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - nowMs) / 1000;
  return seconds > 0 ? seconds : undefined;
}
