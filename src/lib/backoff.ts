import { setTimeout as delay } from 'node:timers/promises';

/** Pauses between tries: the first one, then each `factor` times the previous one, up to the longest. */
export interface Backoff {
  readonly firstMs: number;
  readonly longestMs: number;
  /** Absent: 2. */
  readonly factor?: number;
}

/** Returns the pause after `failures` failed tries (from 1 on). */
export function backoffMs({ firstMs, longestMs, factor = 2 }: Backoff, failures: number): number {
  return Math.min(longestMs, firstMs * factor ** (failures - 1));
}

/** Waits until the time is over or `signal` aborts, without keeping the process alive. Never rejects. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  const options = signal === undefined ? { ref: false } : { ref: false, signal };
  await delay(ms, undefined, options).catch(() => undefined);
}

/**
 * Repeats `work` until it succeeds, and returns its result. `failed` gets each error with the number of
 * failures so far; it throws to give up. When `signal` aborts, the pause ends at once and `work` runs once
 * more.
 */
export async function retry<T>(
  work: () => Promise<T>,
  backoff: Backoff,
  signal: AbortSignal,
  failed: (error: unknown, failures: number) => void,
): Promise<T> {
  for (let failures = 1; ; failures++) {
    try {
      return await work();
    } catch (error) {
      failed(error, failures);
      await pause(backoffMs(backoff, failures), signal);
    }
  }
}

/**
 * Calls `look` until it returns a value, at most `tries` times with `pauses` (milliseconds or backoff) in
 * between. Returns that value, or undefined. Fails when `look` does. For events without a notification that
 * happen soon: keeps the process alive.
 */
export async function poll<T>(
  tries: number,
  pauses: number | Backoff,
  look: () => Promise<T | undefined>,
): Promise<T | undefined> {
  for (let tried = 1; ; tried++) {
    const found = await look();
    if (found !== undefined || tried >= tries) return found;
    await delay(typeof pauses === 'number' ? pauses : backoffMs(pauses, tried));
  }
}
