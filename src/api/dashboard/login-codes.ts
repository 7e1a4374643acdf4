import { randomBytes } from 'node:crypto';
import { unauthenticated } from '../../core/error.ts';

const CODE_BYTES = 24;
/** Lifetime of a code, long enough to open a browser. */
export const CODE_SECONDS = 60;
const MAX_CODES_OF_TENANT = 32;

interface Waiting {
  readonly tenant: string;
  readonly token: string;
  readonly untilMs: number;
}

/**
 * Creates codes for one-time links, each for a token.
 * A code is valid once, for a minute, and reveals nothing about the token.
 */
export class LoginCodes {
  readonly #waiting = new Map<string, Waiting>();
  readonly #now: () => number;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  /** Returns a code for a token of `tenant`. Removes the tenant's oldest open code if there are too many. */
  make(tenant: string, token: string): string {
    for (const [code, { untilMs }] of this.#waiting) if (untilMs <= this.#now()) this.#waiting.delete(code);
    const ofTenant = [...this.#waiting].filter(([, waiting]) => waiting.tenant === tenant);
    const [oldest] = ofTenant;
    if (oldest !== undefined && ofTenant.length >= MAX_CODES_OF_TENANT) this.#waiting.delete(oldest[0]);
    const code = randomBytes(CODE_BYTES).toString('base64url');
    this.#waiting.set(code, { tenant, token, untilMs: this.#now() + CODE_SECONDS * 1000 });
    return code;
  }

  /** Returns the token of a code, and invalidates the code. Fails with `unauthenticated`. */
  use(code: string): string {
    const found = this.#waiting.get(code);
    this.#waiting.delete(code);
    if (found === undefined || found.untilMs <= this.#now()) {
      throw unauthenticated('authentication failed: the link was used, or is older than a minute');
    }
    return found.token;
  }
}
