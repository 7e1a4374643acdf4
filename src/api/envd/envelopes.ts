import type { Readable } from 'node:stream';
import { isJsonObject, type JsonObject, parseJson } from '../../core/json.ts';
import { LIMITS } from '../../core/limits.ts';
import { FrameJoiner, FrameTooLong } from '../../lib/length-frames.ts';
import { ConnectError } from './errors.ts';

/**
 * Envelopes of Connect streams: one byte of flags, the length of the message (u32, big-endian), the message
 * as JSON.
 */
const HEAD_BYTES = 5;
const FLAG_COMPRESSED = 1;
const FLAG_END = 2;

/** Returns the envelope of a message. */
export function messageEnvelope(message: object): Buffer {
  return envelopeOf(0, message);
}

/** Returns the last envelope of a stream. */
export function endEnvelope(error: ConnectError | null): Buffer {
  return envelopeOf(FLAG_END, error === null ? {} : { error: toErrorBody(error) });
}

export function toErrorBody({ code, message }: ConnectError) {
  return { code, message };
}

function envelopeOf(flags: number, message: object): Buffer {
  const text = JSON.stringify(message);
  const bytes = Buffer.byteLength(text);
  const envelope = Buffer.allocUnsafe(HEAD_BYTES + bytes);
  envelope.writeUInt8(flags, 0);
  envelope.writeUInt32BE(bytes, 1);
  envelope.write(text, HEAD_BYTES);
  return envelope;
}

/**
 * Yields the messages of a client's stream as they arrive. Ends at an end envelope, or with the body. Fails
 * with `invalid_argument`, `resource_exhausted` (a message is larger than `LIMITS.e2bMessageBytes`) or
 * `unimplemented` (compression).
 */
export async function* readEnvelopes(body: Readable): AsyncGenerator<JsonObject, void, undefined> {
  const joiner = new FrameJoiner(LIMITS.e2bMessageBytes, HEAD_BYTES);
  for await (const piece of piecesOf(body)) {
    joiner.push(piece);
    for (let frame = takeFrame(joiner); frame !== null; frame = takeFrame(joiner)) {
      const flags = frame.head.readUInt8(0);
      if (flags & FLAG_END) return;
      if (flags & FLAG_COMPRESSED) throw new ConnectError('unimplemented', 'compressed messages are not supported');
      yield readMessage(frame.body);
    }
  }
  if (joiner.rest().length > 0) throw new ConnectError('invalid_argument', 'the body ends within an envelope');
}

/**
 * Yields the pieces of a body. Leaving the loop early keeps the body, because its connection carries the
 * answer.
 */
function piecesOf(body: Readable): AsyncIterable<Buffer> {
  return body.iterator({ destroyOnReturn: false });
}

function takeFrame(joiner: FrameJoiner) {
  try {
    return joiner.shift();
  } catch (error) {
    if (error instanceof FrameTooLong) throw tooLarge();
    throw error;
  }
}

/** Reads the body of a unary call. Fails with `invalid_argument` or `resource_exhausted`. */
export async function readUnary(body: Readable): Promise<JsonObject> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of piecesOf(body)) {
    bytes += piece.length;
    if (bytes > LIMITS.e2bMessageBytes) throw tooLarge();
    pieces.push(piece);
  }
  return bytes === 0 ? {} : readMessage(Buffer.concat(pieces, bytes));
}

function readMessage(bytes: Buffer): JsonObject {
  const parsed = parseJson(bytes);
  if (!parsed.ok) throw new ConnectError('invalid_argument', `the message is not JSON: ${parsed.word}`);
  if (!isJsonObject(parsed.value)) throw new ConnectError('invalid_argument', 'the message must be an object');
  return parsed.value;
}

function tooLarge(): ConnectError {
  return new ConnectError('resource_exhausted', `a message has at most ${LIMITS.e2bMessageBytes} bytes`);
}
