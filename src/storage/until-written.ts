import { ServiceError } from '../core/error.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import { isDiskFull } from '../lib/system-errors.ts';

const RETRY = { firstMs: 100, longestMs: 5_000 };

/**
 * Writes what must not be lost again and again until it is there: a disk that is full, or slow, gets better. `write` has to be one that
 * may be done twice, since one that was not confirmed may be there. Who waits for it keeps its slot, so that no more than what may run
 * at one time is ever held. Fails with what `write` failed with when that will not pass, or when `signal` aborts.
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
  if (isDiskFull(error)) return true;
  return error instanceof ServiceError && (error.code === 'unavailable' || error.code === 'resource_exhausted');
}
