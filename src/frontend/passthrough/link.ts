import { createHmac, timingSafeEqual } from 'node:crypto';

/** What a signature is good for: that of a link is no cookie, and the other way round. */
export type LinkUse = 'link' | 'cookie';

/** In the query of a signed link. */
export const LINK_PARAMETER = 'rookery_link';

const SIGNED = /^([0-9a-z]{1,10})\.([\w-]{43})$/;

/**
 * Signs the right to come to one address until a moment. A signature says nothing but that: it names no tenant, and is no token of the service.
 * `subject` is what the right is for; all replicas have the same key.
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

  /** Until when it holds, in seconds since 1970; null: it does not. */
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
