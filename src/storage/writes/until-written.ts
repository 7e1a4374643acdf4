import { ServiceError } from '../../core/error.ts';
import { retry } from '../../lib/backoff.ts';
import { isDiskFull } from '../../lib/system-errors.ts';
import { Fenced } from '../queries/nodes.ts';

const RETRY = { firstMs: 100, longestMs: 5_000 };

/**
 * Repeats a write that must not be lost until it succeeds: a disk or a database may recover. `write` must be
 * idempotent, since an unconfirmed write may exist. It may also be a read that the caller needs. The caller
 * bounds the number of waiting writes by a slot or a timeout. `onFailure` gets the first error only. Fails
 * with the error of `write` when that error is permanent, or when `signal` aborts.
 */
export async function untilWritten<T>(
  write: () => Promise<T>,
  signal: AbortSignal,
  onFailure: (error: unknown) => void,
): Promise<T> {
  return await retry(write, RETRY, signal, (error, failures) => {
    if (!mayPass(error) || signal.aborted) throw error;
    if (failures === 1) onFailure(error);
  });
}

/** Returns true when the disk or the write queue may accept the same write a little later. */
export function mayPass(error: unknown): boolean {
  if (error instanceof Fenced) return false;
  if (isDiskFull(error)) return true;
  return error instanceof ServiceError && (error.code === 'unavailable' || error.code === 'resource_exhausted');
}
