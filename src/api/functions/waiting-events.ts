/** An event, or a piece of an event that is too large for a turn. */
export interface EventPiece {
  readonly bytes: Buffer;
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

const LENGTH_BYTES = 4;
const FIRST_BYTES = 4096;
const LF = 0x0a;
const CR = 0x0d;
const EMPTY = Buffer.alloc(0);

/**
 * Queues events in a single buffer, first in, first out.
 * A quarter of a million one-byte events occupy about a megabyte, instead of a quarter of a million objects.
 */
export class WaitingEvents {
  #memory: Buffer = EMPTY;
  #from = 0;
  #to = 0;
  /** Bytes of the first event that were already returned. */
  #takenBytes = 0;

  get isEmpty(): boolean {
    return this.#from === this.#to;
  }

  /** Bytes of memory that the queue occupies. */
  get heldBytes(): number {
    return this.#memory.length;
  }

  add(bytes: Buffer): void {
    this.#makeRoom(LENGTH_BYTES + bytes.length);
    this.#memory.writeUInt32BE(bytes.length, this.#to);
    bytes.copy(this.#memory, this.#to + LENGTH_BYTES);
    this.#to += LENGTH_BYTES + bytes.length;
  }

  /**
   * Returns the first event, or up to `maxBytes` of its remaining bytes. The queue must not be empty.
   * The result is a view that is valid until the next `add`.
   */
  next(maxBytes: number): EventPiece {
    const length = this.#memory.readUInt32BE(this.#from);
    const start = this.#from + LENGTH_BYTES;
    const isFirst = this.#takenBytes === 0;
    const first = start + this.#takenBytes;
    const end = start + length;
    let until = Math.min(end, first + maxBytes);
    // A CRLF must stay in one piece, because two halves would count as two line ends.
    if (until < end && this.#memory[until - 1] === CR && this.#memory[until] === LF) until += 1;
    const bytes = this.#memory.subarray(first, until);
    const isLast = until === end;
    if (isLast) {
      this.#from = end;
      this.#takenBytes = 0;
      if (this.isEmpty) this.clear();
    } else this.#takenBytes += bytes.length;
    return { bytes, isFirst, isLast };
  }

  clear(): void {
    this.#memory = EMPTY;
    this.#from = 0;
    this.#to = 0;
    this.#takenBytes = 0;
  }

  #makeRoom(bytes: number): void {
    if (this.#to + bytes <= this.#memory.length) return;
    const waiting = this.#memory.subarray(this.#from, this.#to);
    const enough = waiting.length + bytes;
    // Earlier views must not change, so the waiting bytes are always copied to new memory.
    const memory = Buffer.allocUnsafeSlow(
      Math.max(FIRST_BYTES, enough <= this.#memory.length / 2 ? this.#memory.length : enough + waiting.length),
    );
    waiting.copy(memory);
    this.#memory = memory;
    this.#from = 0;
    this.#to = waiting.length;
  }
}
