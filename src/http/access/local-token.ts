import { timingSafeEqual } from 'node:crypto';
import { unauthenticated } from '../../core/error.ts';
import type { Identity, TokenVerifier } from './credentials.ts';

/** The identity of the token: every tenant and every right, as without authentication. */
const OWNER: Identity = { tenant: undefined, role: 'developer' };

/**
 * Accepts only the token of `serve --local-token`, which is stored in the data directory.
 * Every other token fails with `unauthenticated`.
 */
export function createLocalTokenVerifier(token: string): TokenVerifier {
  const expected = Buffer.from(token);
  return {
    known(given) {
      const bytes = Buffer.from(given);
      return bytes.length === expected.length && timingSafeEqual(bytes, expected) ? OWNER : undefined;
    },
    verify() {
      const where = 'the file local-token of the data directory';
      return Promise.reject(
        unauthenticated(`authentication failed: the token is not that of this service, in ${where}`),
      );
    },
  };
}
