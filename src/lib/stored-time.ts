/**
 * Returns the milliseconds until a stored wall-clock time. 0 when it has passed, and at most `longestMs`, the
 * longest wait that was possible. The clock may have been ahead when the time was stored.
 */
export function msUntilStored(atMs: number, longestMs: number, nowMs: number = Date.now()): number {
  return Math.min(Math.max(0, atMs - nowMs), longestMs);
}

/**
 * Largest difference between the clocks of replicas. A stored past time that lies further ahead comes from a
 * wrong clock.
 */
export const MAX_CLOCK_SKEW_MS = 600_000;

/**
 * Returns true when a stored time comes from a clock that was ahead. The time was the present when it was
 * stored.
 */
export function isFromWrongClock(storedMs: number, nowMs: number = Date.now()): boolean {
  return storedMs > nowMs + MAX_CLOCK_SKEW_MS;
}
