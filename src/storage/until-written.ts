import { ServiceError } from '../core/error.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import { isDiskFull } from '../lib/system-errors.ts';
import { Fenced } from './nodes.ts';

const RETRY = { firstMs: 100, longestMs: 5_000 };

/**
 * Repeats a write that must not be lost until it succeeds: a full or slow disk gets better, a database that is away comes back. `write` has to
 * be one that may be done twice, since one that was not confirmed may be there; a read that its caller cannot do without is one too. Its caller
 * bounds how many wait: it keeps its slot meanwhile, or gives them a time.
 * Fails with the error of `write` when that will not pass, or when `signal` aborts.
 */
export async function untilWritten<T>(
  write: () => Promise<T>,
  signal: AbortSignal,
  onFailure: (error: unknown) => void,
): Promise<T> {
  for (let failures = 1; ; failures++) {
    try {
      return await write();
    } catch (error) {
      if (!mayPass(error) || signal.aborted) throw error;
      // Told once: it is the same story until it is over.
      if (failures === 1) onFailure(error);
      await pause(backoffMs(RETRY, failures), signal);
    }
  }
}

/** Whether the disk, or the queue before it, may take the same write a little later. */
export function mayPass(error: unknown): boolean {
  if (error instanceof Fenced) return false;
  if (isDiskFull(error)) return true;
  return error instanceof ServiceError && (error.code === 'unavailable' || error.code === 'resource_exhausted');
}
