import { randomFillSync } from 'node:crypto';

const BYTES = 24;
/** Secrets per call of the library. A call with cold code costs a start 0.1 ms, whatever its size. */
const MADE_AT_ONCE = 64;

const pool = Buffer.allocUnsafeSlow(BYTES * MADE_AT_ONCE);
let at = pool.length;

/**
 * Returns the secret by which an instance recognizes its control plane: 192 random bits, base64url, 32
 * characters. The pool keeps no copy of returned secrets.
 */
export function newSecret(): string {
  if (at === pool.length) {
    randomFillSync(pool);
    at = 0;
  }
  const bytes = pool.subarray(at, at + BYTES);
  at += BYTES;
  const secret = bytes.toString('base64url');
  bytes.fill(0);
  return secret;
}
