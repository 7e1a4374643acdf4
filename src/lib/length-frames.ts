/** A frame: the length of its body as u32 (big-endian), then the body, which the parts make together. */
export function frameOf(...parts: readonly Buffer[]): Buffer {
  let bytes = 0;
  for (const part of parts) bytes += part.length;
  return Buffer.concat([frameHead(bytes), ...parts], 4 + bytes);
}

/** The bytes before a body of this length, for one that is written without a copy. */
export function frameHead(bodyBytes: number): Buffer {
  const head = Buffer.allocUnsafe(4);
  head.writeUInt32BE(bodyBytes);
  return head;
}

/** A frame that announces more than may come: nothing behind it can be read. */
export class FrameTooLong extends RangeError {}

/**
 * Puts frames together that come in pieces. The last four bytes of a head of `headBytes` are the length of the body (u32, big-endian). Pieces
 * are kept as they came until a frame is whole, so that one that comes in many of them is copied once.
 */
export class FrameJoiner {
  readonly #maxBodyBytes: number;
  readonly #headBytes: number;
  #pieces: Buffer[] = [];
  #bytes = 0;
  /** Less than that is no use. */
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

  /** The next whole frame, null while there is none. Throws `FrameTooLong`. */
  take(): { readonly head: Buffer; readonly body: Buffer } | null {
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

  /** All that came and was not taken; from now on it is the caller's. */
  rest(): Buffer {
    const [first] = this.#pieces;
    const all = this.#pieces.length === 1 && first !== undefined ? first : Buffer.concat(this.#pieces, this.#bytes);
    this.#pieces = [];
    this.#bytes = 0;
    this.#wantedBytes = this.#headBytes;
    return all;
  }
}
