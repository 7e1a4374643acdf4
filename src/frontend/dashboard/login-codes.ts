import { randomBytes } from 'node:crypto';
import { resourceExhausted, unauthenticated } from '../../core/error.ts';

const CODE_BYTES = 24;
/** Long enough to open a browser. */
export const CODE_SECONDS = 60;
const MAX_CODES = 256;

interface Waiting {
  readonly token: string;
  readonly untilMs: number;
}

/** Codes of one-time links, each for a token: a code is good once and for a minute, and says nothing of the token. */
export class LoginCodes {
  readonly #waiting = new Map<string, Waiting>();
  readonly #now: () => number;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  /** Fails with `resource_exhausted`. */
  make(token: string): string {
    for (const [code, { untilMs }] of this.#waiting) if (untilMs <= this.#now()) this.#waiting.delete(code);
    if (this.#waiting.size >= MAX_CODES) {
      throw resourceExhausted('too many login links are open', { retryAfterSeconds: CODE_SECONDS });
    }
    const code = randomBytes(CODE_BYTES).toString('base64url');
    this.#waiting.set(code, { token, untilMs: this.#now() + CODE_SECONDS * 1000 });
    return code;
  }

  /** The token that the code stands for; it is used then. Fails with `unauthenticated`. */
  use(code: string): string {
    const found = this.#waiting.get(code);
    this.#waiting.delete(code);
    if (found === undefined || found.untilMs <= this.#now()) {
      throw unauthenticated('authentication failed: the link was used, or is older than a minute');
    }
    return found.token;
  }
}
