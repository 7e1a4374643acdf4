/** Something that holds bytes for a peer, which may be slow on purpose. */
export interface Holder {
  /** Releases the held bytes at once, because other holders need memory. Must not throw. */
  giveUp(): void;
}

/**
 * Bounds the memory that many holders use together. Above the bound, the holder with the most bytes times
 * time gives up, then the next one, until the rest fits. Holders with few bytes or a short time are safe.
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

  /**
   * Sets the number of bytes that `holder` holds from now on. Any holder may have to give up, including this
   * one.
   */
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
