import { LIMITS } from '../core/limits.ts';
import { HeldBytes } from '../lib/budgets.ts';
import { FRAME_HEADER_BYTES } from './protocol.ts';

/** A frame from the wire. `payload` is a view that belongs to the receiver. */
export interface Frame {
  readonly type: number;
  readonly callId: number;
  readonly payload: Buffer;
}

/** Encodes a frame with its payload, ready for one write. */
export function encodeFrame(type: number, callId: number, payload?: Buffer | string): Buffer {
  const bytes = payload === undefined ? 0 : typeof payload === 'string' ? Buffer.byteLength(payload) : payload.length;
  const frame = Buffer.allocUnsafe(FRAME_HEADER_BYTES + bytes);
  writeHeader(frame, type, callId, bytes);
  if (typeof payload === 'string') frame.write(payload, FRAME_HEADER_BYTES);
  else payload?.copy(frame, FRAME_HEADER_BYTES);
  return frame;
}

/** Encodes a frame of the connection with a JSON payload. */
export function encodeMessage(type: number, message: object): Buffer {
  return encodeFrame(type, 0, JSON.stringify(message));
}

/** Writes the 9 header bytes of a frame whose payload has `payloadBytes` bytes. */
export function writeHeader(target: Buffer, type: number, callId: number, payloadBytes: number, at = 0): void {
  target.writeUInt32BE(payloadBytes + 5, at);
  target[at + 4] = type;
  target.writeUInt32BE(callId, at + 5);
}

export interface FrameReceiver {
  /**
   * Checks a frame when its header arrives, before any of its payload is kept.
   * Returns false to drop the payload as it arrives. Throws when the frame is not allowed.
   */
  admit(type: number, callId: number, payloadBytes: number): boolean;
  /** Receives a frame. Its payload is empty if `admit` returned false. */
  receive(frame: Frame): void;
  /** Notifies that an unfinished frame was dropped to free memory for others. No more frames can be read. */
  abandon(): void;
}

/** A frame whose payload has not arrived completely. */
interface OpenFrame {
  readonly type: number;
  readonly callId: number;
  /** The payload; null when it is dropped. */
  payload: Buffer | null;
  readonly payloadBytes: number;
  filledBytes: number;
}

const EMPTY = Buffer.alloc(0);
/** The memory of all connections' unfinished frames. */
const UNFINISHED = new HeldBytes(LIMITS.unfinishedFrameBytes);

/**
 * Cuts a byte stream into frames.
 * Memory for an unfinished frame is allocated once, so it does not matter how its bytes were split in
 * transit. `push` throws the receiver's errors, and a `RangeError` when a frame announces more than
 * `LIMITS.frameBytes`. The connection is unusable then.
 */
export class FrameReader {
  receiver: FrameReceiver;
  /** Bytes after the last whole frame, or bytes that arrived while the reader was held. */
  #rest: Buffer = EMPTY;
  #open: OpenFrame | undefined;
  #isHeld = false;

  constructor(receiver: FrameReceiver) {
    this.receiver = receiver;
  }

  /** Stops delivery of frames until `release`. Call it from `take`, and read no more bytes. */
  pause(): void {
    this.#isHeld = true;
  }

  release(): void {
    this.#isHeld = false;
    this.push(EMPTY);
  }

  /** Drops the payload of this call's frame, if one has begun. */
  drop(callId: number): void {
    if (this.#open?.callId !== callId) return;
    this.#open.payload = null;
    UNFINISHED.release(this);
  }

  /** Releases all memory. */
  close(): void {
    this.#open = undefined;
    this.#rest = EMPTY;
    this.#isHeld = true;
    UNFINISHED.release(this);
  }

  abandon(): void {
    this.close();
    this.receiver.abandon();
  }

  /** Reads `bytes`. The caller may reuse their memory when this returns. */
  push(bytes: Buffer): void {
    const at = this.#open === undefined ? 0 : this.#fill(this.#open, bytes);
    if (this.#open !== undefined) return;
    const news = at === 0 ? bytes : bytes.subarray(at);
    // One copy serves all frames that arrived together.
    this.#cut(this.#rest.length === 0 ? Buffer.from(news) : Buffer.concat([this.#rest, news]));
  }

  #cut(buffer: Buffer): void {
    const { length } = buffer;
    let at = 0;
    while (length - at >= FRAME_HEADER_BYTES && !this.#isHeld) {
      const frameBytes = buffer.readUInt32BE(at);
      if (frameBytes < 5 || frameBytes > LIMITS.frameBytes) throw new RangeError(`frame of ${frameBytes} bytes`);
      const type = buffer[at + 4] as number;
      const callId = buffer.readUInt32BE(at + 5);
      const payloadBytes = frameBytes - 5;
      const isWanted = this.receiver.admit(type, callId, payloadBytes);
      const start = at + FRAME_HEADER_BYTES;
      const end = start + payloadBytes;
      if (end > length) {
        this.#rest = EMPTY;
        this.#openFrame(type, callId, payloadBytes, isWanted, start === length ? EMPTY : buffer.subarray(start));
        return;
      }
      at = end;
      this.receiver.receive({ type, callId, payload: isWanted ? buffer.subarray(start, end) : EMPTY });
    }
    this.#rest = at === length ? EMPTY : at === 0 ? buffer : Buffer.from(buffer.subarray(at));
  }

  #openFrame(type: number, callId: number, payloadBytes: number, isWanted: boolean, first: Buffer): void {
    const payload = isWanted ? Buffer.allocUnsafeSlow(payloadBytes) : null;
    this.#open = { type, callId, payload, payloadBytes, filledBytes: 0 };
    this.#fill(this.#open, first);
    if (isWanted) UNFINISHED.hold(this, payloadBytes);
  }

  /** Copies bytes into the open frame, and returns how many belong to it. */
  #fill(open: OpenFrame, bytes: Buffer): number {
    const { type, callId, payload } = open;
    const taken = Math.min(bytes.length, open.payloadBytes - open.filledBytes);
    if (payload !== null) bytes.copy(payload, open.filledBytes, 0, taken);
    open.filledBytes += taken;
    if (open.filledBytes < open.payloadBytes) return taken;
    this.#open = undefined;
    if (payload !== null) UNFINISHED.release(this);
    this.receiver.receive({ type, callId, payload: payload ?? EMPTY });
    return taken;
  }
}
