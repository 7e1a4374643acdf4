/** Something that holds memory for somebody who may be slow on purpose. */
export interface Holder {
  /** Lets go of what it holds, at once: others need the room. */
  giveUp(): void;
}

/**
 * A bound of the memory that many hold together. When it is passed, the one that has held the most for the longest gives up, again and again
 * until the rest has room: who comes and goes is not in danger, whoever sits on a lot is.
 */
export class HeldBytes {
  readonly #maxBytes: number;
  readonly #held = new Map<Holder, { bytes: number; readonly sinceMs: number }>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** `holder` holds so many bytes from now on. May make any holder give up, this one too. */
  hold(holder: Holder, bytes: number): void {
    const held = this.#held.get(holder);
    this.#bytes += bytes - (held?.bytes ?? 0);
    if (held) held.bytes = bytes;
    else this.#held.set(holder, { bytes, sinceMs: performance.now() });
    while (this.#bytes > this.#maxBytes) this.#giveUp();
  }

  release(holder: Holder): void {
    const held = this.#held.get(holder);
    if (held === undefined) return;
    this.#held.delete(holder);
    this.#bytes -= held.bytes;
  }

  #giveUp(): void {
    const nowMs = performance.now();
    let worst: Holder | undefined;
    let worstScore = -1;
    for (const [holder, { bytes, sinceMs }] of this.#held) {
      const score = bytes * (nowMs - sinceMs);
      if (score <= worstScore) continue;
      worst = holder;
      worstScore = score;
    }
    if (worst === undefined) return;
    this.release(worst);
    worst.giveUp();
  }
}
