import { setTimeout as delay } from 'node:timers/promises';

/** How the pauses between tries grow: the first one, and then each `factor` times the one before, up to the longest. */
export interface Backoff {
  readonly firstMs: number;
  readonly longestMs: number;
  /** 2 when it is not named. */
  readonly factor?: number;
}

/** How long to wait after so many tries that failed (from 1 on). */
export function backoffMs({ firstMs, longestMs, factor = 2 }: Backoff, failures: number): number {
  return Math.min(longestMs, firstMs * factor ** (failures - 1));
}

/** Waits, without keeping the process alive, until the time is over or `signal` aborts. Never rejects. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  const options = signal === undefined ? { ref: false } : { ref: false, signal };
  await delay(ms, undefined, options).catch(() => undefined);
}

/**
 * What `look` finds, asked again every `pauses` milliseconds while it finds nothing; undefined when it has found nothing `tries` times. Fails
 * when `look` does. For what comes in a moment and tells nobody: it keeps the process alive.
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
