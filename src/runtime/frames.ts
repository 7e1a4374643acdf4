import { LIMITS } from '../core/limits.ts';
import { HeldBytes } from '../lib/held-bytes.ts';
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

export interface FrameReceiver {
  /**
   * Looks at a frame whose header came, before any of its payload is kept. False: nobody wants the payload, and it is thrown away as it
   * comes. Throws when the frame may not come at all.
   */
  admit(type: number, callId: number, payloadBytes: number): boolean;
  /** The payload is empty when it was not wanted. */
  take(frame: Frame): void;
  /** A frame that was not finished has to be given up, so that others have room: nothing more can be read. */
  giveUp(): void;
}

/** Of a frame that goes on beyond what was read. */
interface OpenFrame {
  readonly type: number;
  readonly callId: number;
  /** Null when nobody wants it. */
  payload: Buffer | null;
  readonly payloadBytes: number;
  filledBytes: number;
}

const EMPTY = Buffer.alloc(0);
/** The frames of all connections that have begun and not ended. */
const UNFINISHED = new HeldBytes(LIMITS.unfinishedFrameBytes);

/**
 * Cuts a byte stream into frames. It keeps the frame that has begun, in memory of its own that was asked for once: how its bytes
 * were cut on their way does not matter. `push` throws what the receiver does, and when a frame announces more than
 * `LIMITS.frameBytes`: the connection is then of no use.
 */
export class FrameReader {
  receiver: FrameReceiver;
  /** Bytes behind the last whole frame, or that came while it was held. */
  #rest: Buffer = EMPTY;
  #open: OpenFrame | undefined;
  #isHeld = false;

  constructor(receiver: FrameReceiver) {
    this.receiver = receiver;
  }

  /** No frame is taken before `release`; call it from `take`, and read nothing more. */
  hold(): void {
    this.#isHeld = true;
  }

  release(): void {
    this.#isHeld = false;
    this.push(EMPTY);
  }

  /** Nobody wants the payload of this call's frame any more, if one has begun. */
  drop(callId: number): void {
    if (this.#open?.callId !== callId) return;
    this.#open.payload = null;
    UNFINISHED.release(this);
  }

  /** Lets go of everything. */
  close(): void {
    this.#open = undefined;
    this.#rest = EMPTY;
    this.#isHeld = true;
    UNFINISHED.release(this);
  }

  giveUp(): void {
    this.close();
    this.receiver.giveUp();
  }

  /** `bytes` are the caller's again when it returns. */
  push(bytes: Buffer): void {
    const at = this.#open === undefined ? 0 : this.#fill(this.#open, bytes);
    if (this.#open !== undefined) return;
    const news = at === 0 ? bytes : bytes.subarray(at);
    // One copy for all frames that came together.
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
        this.#begin(type, callId, payloadBytes, isWanted, start === length ? EMPTY : buffer.subarray(start));
        return;
      }
      at = end;
      this.receiver.take({ type, callId, payload: isWanted ? buffer.subarray(start, end) : EMPTY });
    }
    this.#rest = at === length ? EMPTY : at === 0 ? buffer : Buffer.from(buffer.subarray(at));
  }

  #begin(type: number, callId: number, payloadBytes: number, isWanted: boolean, first: Buffer): void {
    const payload = isWanted ? Buffer.allocUnsafeSlow(payloadBytes) : null;
    this.#open = { type, callId, payload, payloadBytes, filledBytes: 0 };
    this.#fill(this.#open, first);
    if (isWanted) UNFINISHED.hold(this, payloadBytes);
  }

  /** How many of the bytes belong to the frame that is open. */
  #fill(open: OpenFrame, bytes: Buffer): number {
    const { type, callId, payload } = open;
    const taken = Math.min(bytes.length, open.payloadBytes - open.filledBytes);
    if (payload !== null) bytes.copy(payload, open.filledBytes, 0, taken);
    open.filledBytes += taken;
    if (open.filledBytes < open.payloadBytes) return taken;
    this.#open = undefined;
    if (payload !== null) UNFINISHED.release(this);
    this.receiver.take({ type, callId, payload: payload ?? EMPTY });
    return taken;
  }
}
