import { LIMITS } from '../core/limits.ts';
import { FRAME_HEADER_BYTES } from './protocol.ts';

/** One frame as it came off the wire. `payload` is a view that belongs to the receiver. */
export interface Frame {
  readonly type: number;
  readonly callId: number;
  readonly payload: Buffer;
}

/** A frame with its payload, ready for one write. */
export function encodeFrame(type: number, callId: number, payload?: Buffer | string): Buffer {
  const bytes = payload === undefined ? 0 : typeof payload === 'string' ? Buffer.byteLength(payload) : payload.length;
  const frame = Buffer.allocUnsafe(FRAME_HEADER_BYTES + bytes);
  writeHeader(frame, type, callId, bytes);
  if (typeof payload === 'string') frame.write(payload, FRAME_HEADER_BYTES);
  else payload?.copy(frame, FRAME_HEADER_BYTES);
  return frame;
}

/** Writes the 9 header bytes of a frame whose payload has `payloadBytes` bytes. */
export function writeHeader(target: Buffer, type: number, callId: number, payloadBytes: number, at = 0): void {
  target.writeUInt32BE(payloadBytes + 5, at);
  target[at + 4] = type;
  target.writeUInt32BE(callId, at + 5);
}

/**
 * Cuts a byte stream into frames. Chunks are kept as they came until a frame is whole, so a large frame is copied
 * once. `push` throws when a frame announces more than `LIMITS.frameBytes`: the connection is then of no use.
 */
export class FrameReader {
  readonly #onFrame: (frame: Frame) => void;
  #chunks: Buffer[] = [];
  #bytes = 0;
  /** Bytes that make the next step possible: a header, or a whole frame. */
  #wanted = FRAME_HEADER_BYTES;

  constructor(onFrame: (frame: Frame) => void) {
    this.#onFrame = onFrame;
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes < this.#wanted) return;
    let buffer = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks, this.#bytes);
    for (;;) {
      if (buffer.length < FRAME_HEADER_BYTES) {
        this.#wanted = FRAME_HEADER_BYTES;
        break;
      }
      const length = buffer.readUInt32BE(0);
      if (length < 5 || length > LIMITS.frameBytes) throw new RangeError(`frame of ${length} bytes`);
      this.#wanted = length + 4;
      if (buffer.length < this.#wanted) break;
      const frame: Frame = {
        type: buffer[4] as number,
        callId: buffer.readUInt32BE(5),
        payload: buffer.subarray(FRAME_HEADER_BYTES, this.#wanted),
      };
      buffer = buffer.subarray(this.#wanted);
      this.#onFrame(frame);
    }
    this.#chunks = buffer.length === 0 ? [] : [buffer];
    this.#bytes = buffer.length;
  }
}
