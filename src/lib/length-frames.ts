/**
 * Returns a frame: the length of its body as u32 (big-endian), then the body, which is all parts together.
 */
export function frameOf(...parts: readonly Buffer[]): Buffer {
  let bytes = 0;
  for (const part of parts) bytes += part.length;
  return Buffer.concat([frameHead(bytes), ...parts], 4 + bytes);
}

/** Returns the head of a frame, so that a body of this length can be written without a copy. */
export function frameHead(bodyBytes: number): Buffer {
  const head = Buffer.allocUnsafe(4);
  head.writeUInt32BE(bodyBytes);
  return head;
}

/** A frame announces more bytes than allowed. No later frame can be read. */
export class FrameTooLong extends RangeError {}

/**
 * Joins frames from pieces. The last four bytes of a head of `headBytes` are the length of the body (u32,
 * big-endian). Pieces are stored unchanged until a frame is complete, so that a frame in many pieces is
 * copied once.
 */
export class FrameJoiner {
  readonly #maxBodyBytes: number;
  readonly #headBytes: number;
  #pieces: Buffer[] = [];
  #bytes = 0;
  /** Bytes that are needed before the next try. */
  #wantedBytes: number;

  constructor(maxBodyBytes: number, headBytes = 4) {
    this.#maxBodyBytes = maxBodyBytes;
    this.#headBytes = headBytes;
    this.#wantedBytes = headBytes;
  }

  push(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#bytes += piece.length;
  }

  /** Returns the next complete frame, or null. Throws `FrameTooLong`. */
  shift(): { readonly head: Buffer; readonly body: Buffer } | null {
    if (this.#bytes < this.#wantedBytes) return null;
    const all = this.rest();
    const bodyBytes = all.readUInt32BE(this.#headBytes - 4);
    if (bodyBytes > this.#maxBodyBytes) {
      throw new FrameTooLong(`a frame of ${bodyBytes} bytes (at most ${this.#maxBodyBytes})`);
    }
    const end = this.#headBytes + bodyBytes;
    const isWhole = all.length >= end;
    this.#wantedBytes = isWhole ? this.#headBytes : end;
    this.push(isWhole ? all.subarray(end) : all);
    return isWhole ? { head: all.subarray(0, this.#headBytes), body: all.subarray(this.#headBytes, end) } : null;
  }

  /** Returns all bytes that were not taken, and forgets them. */
  rest(): Buffer {
    const [first] = this.#pieces;
    const all = this.#pieces.length === 1 && first !== undefined ? first : Buffer.concat(this.#pieces, this.#bytes);
    this.#pieces = [];
    this.#bytes = 0;
    this.#wantedBytes = this.#headBytes;
    return all;
  }
}
