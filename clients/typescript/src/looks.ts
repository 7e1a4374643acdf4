import { setTimeout as delay } from 'node:timers/promises';
import type { RequestOptions } from './connection.ts';
import { Timeout } from './failures.ts';

/** First and longest pause between two status requests, in milliseconds. */
export interface Pauses {
  readonly firstMs: number;
  readonly longestMs: number;
}

const GROWTH = 1.5;

/**
 * Calls `look` until it returns a value, and returns that value. `timeoutMs` limits all calls and pauses
 * together; without it the wait has no limit. Fails with `Timeout` after `timeoutMs`.
 */
export async function untilThere<T>(
  options: RequestOptions,
  { firstMs, longestMs }: Pauses,
  look: (request: RequestOptions) => Promise<{ readonly value: T } | null>,
): Promise<T> {
  const { signal, timeoutMs } = options;
  const endsAtMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + timeoutMs;
  for (let pauseMs = firstMs; ; pauseMs = Math.min(longestMs, pauseMs * GROWTH)) {
    const request = timeoutMs === undefined ? options : { ...options, timeoutMs: endsAtMs - performance.now() };
    const found = await look(request);
    if (found !== null) return found.value;
    const leftMs = endsAtMs - performance.now();
    await delay(Math.max(0, Math.min(pauseMs, leftMs)), undefined, signal === undefined ? {} : { signal });
    if (leftMs <= pauseMs) throw new Timeout('the wait took longer than its timeout');
  }
}
