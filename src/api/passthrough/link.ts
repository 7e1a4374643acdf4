import { createHmac, timingSafeEqual } from 'node:crypto';

/** The use of a signature. A link's signature is not valid as a cookie, and vice versa. */
export type LinkUse = 'link' | 'cookie';

/** The query parameter of a signed link. */
export const LINK_PARAMETER = 'rookery_link';

const SIGNED = /^([0-9a-z]{1,10})\.([\w-]{43})$/;

/**
 * Signs the right to use a public URL until a time.
 * A signature contains nothing else: it names no tenant, and is no token of the service.
 * `subject` names the target. All replicas have the same key.
 */
export class LinkSigner {
  readonly #key: Buffer;
  readonly #now: () => number;

  constructor(key: Buffer, now: () => number = Date.now) {
    this.#key = key;
    this.#now = now;
  }

  sign(use: LinkUse, subject: string, untilSeconds: number): string {
    return `${untilSeconds.toString(36)}.${this.#mac(use, subject, untilSeconds)}`;
  }

  /**
   * Returns the end of a signature's validity, in seconds since 1970. null: the signature is invalid or
   * expired.
   */
  verify(use: LinkUse, subject: string, signed: string): number | null {
    const [, until = '', mac = ''] = SIGNED.exec(signed) ?? [];
    const untilSeconds = Number.parseInt(until, 36);
    if (until === '' || untilSeconds * 1000 <= this.#now()) return null;
    const right = this.#mac(use, subject, untilSeconds);
    return timingSafeEqual(Buffer.from(mac), Buffer.from(right)) ? untilSeconds : null;
  }

  untilSeconds(lifeSeconds: number): number {
    return Math.floor(this.#now() / 1000) + lifeSeconds;
  }

  secondsLeft(untilSeconds: number): number {
    return Math.max(0, untilSeconds - Math.floor(this.#now() / 1000));
  }

  #mac(use: LinkUse, subject: string, untilSeconds: number): string {
    return createHmac('sha256', this.#key).update(`${use}\n${untilSeconds}\n${subject}`).digest('base64url');
  }
}
