/** An event, or a piece of one that is too large for a turn. */
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

/** Events that wait, first come first served, in one piece of memory: a quarter of a million events of one byte are a megabyte, not a quarter of a million objects. */
export class WaitingEvents {
  #memory: Buffer = EMPTY;
  #from = 0;
  #to = 0;
  /** Of the first event, taken already. */
  #takenBytes = 0;

  get isEmpty(): boolean {
    return this.#from === this.#to;
  }

  /** The memory that they occupy. */
  get heldBytes(): number {
    return this.#memory.length;
  }

  add(bytes: Buffer): void {
    this.#makeRoom(LENGTH_BYTES + bytes.length);
    this.#memory.writeUInt32BE(bytes.length, this.#to);
    bytes.copy(this.#memory, this.#to + LENGTH_BYTES);
    this.#to += LENGTH_BYTES + bytes.length;
  }

  /** The first event, or as much of it as is left up to `maxBytes`. A view, good until the next `add`. There must be one. */
  next(maxBytes: number): EventPiece {
    const length = this.#memory.readUInt32BE(this.#from);
    const start = this.#from + LENGTH_BYTES;
    const isFirst = this.#takenBytes === 0;
    const first = start + this.#takenBytes;
    const end = start + length;
    let until = Math.min(end, first + maxBytes);
    // One line end is not two.
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
    // Views of what was taken stay as they are: never moved within the same memory.
    const memory = Buffer.allocUnsafeSlow(
      Math.max(FIRST_BYTES, enough <= this.#memory.length / 2 ? this.#memory.length : enough + waiting.length),
    );
    waiting.copy(memory);
    this.#memory = memory;
    this.#from = 0;
    this.#to = waiting.length;
  }
}
