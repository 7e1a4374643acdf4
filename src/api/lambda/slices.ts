import { createHash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Bytes that are handled in one turn of the event loop: about a millisecond of work. */
const SLICE_BYTES = 256 * 1024;

/** Returns views of consecutive parts of the bytes. */
export function* slicesOf(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += SLICE_BYTES) yield bytes.subarray(at, at + SLICE_BYTES);
}

/**
 * Returns the SHA-256 in hexadecimal. Other requests run between the slices of large data. Another thread
 * would need a copy of the data, which takes longer than a slice.
 */
export async function sha256Of(bytes: Buffer): Promise<string> {
  const hash = createHash('sha256');
  for (const slice of slicesOf(bytes)) {
    hash.update(slice);
    if (bytes.length > SLICE_BYTES) await nextTurn();
  }
  return hash.digest('hex');
}
