/** The first bytes of an output, as text. */
export class BoundedText {
  readonly #maxBytes: number;
  readonly #pieces: Buffer[] = [];
  #bytes = 0;
  #isCut = false;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  add(piece: Buffer): void {
    const kept = piece.subarray(0, this.#maxBytes - this.#bytes);
    if (kept.length < piece.length) this.#isCut = true;
    if (kept.length === 0) return;
    this.#pieces.push(kept);
    this.#bytes += kept.length;
  }

  get text(): string {
    return Buffer.concat(this.#pieces).toString();
  }

  /** True if bytes were dropped. */
  get isCut(): boolean {
    return this.#isCut;
  }
}
