import type net from 'node:net';
import type { Call } from './call.ts';
import { writeHeader } from './frames.ts';
import { FRAME, FRAME_HEADER_BYTES } from './protocol.ts';

/**
 * Limit up to which a body is copied after its header. A larger body is a separate buffer in the same
 * `writev`.
 */
const COPY_BODY_BYTES = 64 * 1024;
/** Size above which a batch is written at once. */
const MAX_BATCH_BYTES = 64 * 1024;

interface WaitingFrame {
  readonly callId: number;
  readonly header: string;
  readonly headerBytes: number;
  readonly body: Buffer;
}

/**
 * Collects the CALL frames of a turn of the event loop, and writes them together in their order.
 * Each write wakes the process at the other end, which costs more than the rest of a call. Under load many
 * calls share one write.
 */
export class CallBatch {
  readonly #socket: net.Socket;
  #waiting: WaitingFrame[] = [];
  #bytes = 0;
  readonly #flush = () => this.flush();

  constructor(socket: net.Socket) {
    this.#socket = socket;
  }

  /** Number of bytes that were added and not written yet. */
  get bytes(): number {
    return this.#bytes;
  }

  add(callId: number, header: string, headerBytes: number, body: Buffer): void {
    const isLarge = body.length > COPY_BODY_BYTES;
    if (isLarge) {
      this.flush();
      this.#writeLarge(callId, header, headerBytes, body);
      return;
    }
    this.#bytes += FRAME_HEADER_BYTES + 2 + headerBytes + body.length;
    const count = this.#waiting.push({ callId, header, headerBytes, body });
    if (this.#bytes > MAX_BATCH_BYTES) this.flush();
    // Runs after the reads of this turn, and before the event loop waits again.
    else if (count === 1) setImmediate(this.#flush);
  }

  /** Writes the collected frames. Call it before any frame that must not overtake them. */
  flush(): void {
    if (this.#bytes === 0) return;
    const frames = Buffer.allocUnsafe(this.#bytes);
    let at = 0;
    for (const { callId, header, headerBytes, body } of this.#waiting) {
      at = writeLead(frames, at, callId, header, headerBytes, body);
      frames.set(body, at);
      at += body.length;
    }
    this.#waiting = [];
    this.#bytes = 0;
    if (!this.#socket.destroyed) this.#socket.write(frames);
  }

  #writeLarge(callId: number, header: string, headerBytes: number, body: Buffer): void {
    const lead = Buffer.allocUnsafe(FRAME_HEADER_BYTES + 2 + headerBytes);
    writeLead(lead, 0, callId, header, headerBytes, body);
    this.#socket.cork();
    this.#socket.write(lead);
    this.#socket.write(body);
    this.#socket.uncork();
  }
}

/** Writes the parts of a frame before its body, and returns the offset of the body. */
function writeLead(
  target: Buffer,
  at: number,
  callId: number,
  header: string,
  headerBytes: number,
  body: Buffer,
): number {
  writeHeader(target, FRAME.CALL, callId, 2 + headerBytes + body.length, at);
  const start = at + FRAME_HEADER_BYTES;
  target.writeUInt16BE(headerBytes, start);
  target.write(header, start + 2);
  return start + 2 + headerBytes;
}

/** The machine's monotonic time at which the clock of `performance` began, in milliseconds. */
export const MONOTONIC_MS = Number(process.hrtime.bigint()) / 1e6 - performance.now();

type SentHeader = Call['header'];
/** Fields that few calls have. The check below proves that the list is complete. */
const RARE_FIELDS = ['sessionId', 'entry', 'stream', 'credit'] as const satisfies readonly (keyof SentHeader)[];
type UsualField = 'traceId' | 'traceparent' | 'requestId' | 'headers';
type Missing = Exclude<keyof SentHeader, UsualField | (typeof RARE_FIELDS)[number]>;
/** Fails to compile when a field is in neither list. */
const NONE_MISSING: [Missing] extends [never] ? true : Missing = true;
void NONE_MISSING;

/**
 * Writes the JSON of a `CallHeader` field by field: `JSON.stringify` of an object costs four times as much.
 */
export function encodeCallHeader({ header, timeoutMs, waitedMs = 0 }: Call, isHere: boolean): string {
  const { traceId, traceparent, requestId, headers } = header;
  const at = isHere ? `,"atMs":${Math.round(MONOTONIC_MS + performance.now())}` : '';
  let json = `{"remainingMs":${timeoutMs - waitedMs}${at},"traceId":${quoted(traceId)}`;
  json += `,"traceparent":${quoted(traceparent)},"requestId":${quoted(requestId)}`;
  if (headers !== undefined) json += `,"headers":${JSON.stringify(headers)}`;
  for (const field of RARE_FIELDS) {
    const value = header[field];
    if (value !== undefined) json += `,"${field}":${JSON.stringify(value)}`;
  }
  return `${json}}`;
}

/** Matches text without characters that JSON escapes. */
const PLAIN_TEXT = /^[ !#-[\]-~]*$/;

function quoted(text: string): string {
  return PLAIN_TEXT.test(text) ? `"${text}"` : JSON.stringify(text);
}
