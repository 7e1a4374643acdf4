import { crc32 } from 'node:zlib';
import { type StreamFormat, streamHeaders } from '../functions/event-stream.ts';

/** The end of a response stream. Without fields: the function has succeeded. */
export interface StreamEnd {
  readonly ErrorCode?: string;
  readonly ErrorDetails?: string;
  /** The last bytes of the log, in Base64. */
  readonly LogResult?: string;
}

/** A response stream as clients of AWS Lambda read it: one message for each chunk. */
export const RESPONSE_STREAM: StreamFormat = {
  headers: streamHeaders('application/vnd.amazon.eventstream'),
  heartbeat: '',
  encode: bytes => (bytes.length === 0 ? '' : message(CHUNK, bytes)),
};

/** Returns the last message of a response stream. */
export function streamEnd(end: StreamEnd): Buffer {
  return message(END, Buffer.from(JSON.stringify(end)));
}

const CHECKSUM_BYTES = 4;
/** Lengths of the message and of its headers, and their checksum. */
const PRELUDE_BYTES = 8 + CHECKSUM_BYTES;
const TEXT_HEADER = 7;
/** Headers of the two types of messages. */
const CHUNK = headersOf('PayloadChunk', 'application/octet-stream');
const END = headersOf('InvokeComplete', 'application/json');

/**
 * Returns a message of `application/vnd.amazon.eventstream`. Numbers are big-endian: the length of the whole
 * message, the length of its headers, the CRC-32 of both; the headers; the payload; the CRC-32 of all before.
 */
function message(headers: Buffer, payload: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(PRELUDE_BYTES + headers.length + payload.length + CHECKSUM_BYTES);
  bytes.writeUInt32BE(bytes.length, 0);
  bytes.writeUInt32BE(headers.length, 4);
  bytes.writeUInt32BE(crc32(bytes.subarray(0, 8)), 8);
  headers.copy(bytes, PRELUDE_BYTES);
  payload.copy(bytes, PRELUDE_BYTES + headers.length);
  const end = bytes.length - CHECKSUM_BYTES;
  bytes.writeUInt32BE(crc32(bytes.subarray(0, end)), end);
  return bytes;
}

function headersOf(type: string, contentType: string): Buffer {
  return Buffer.concat([
    header(':message-type', 'event'),
    header(':event-type', type),
    header(':content-type', contentType),
  ]);
}

/** Returns a header of a message: its name, the type of text, and its value, each with its length. */
function header(name: string, value: string): Buffer {
  const bytes = Buffer.allocUnsafe(1 + name.length + 1 + 2 + value.length);
  let at = bytes.writeUInt8(name.length, 0);
  at += bytes.write(name, at, 'latin1');
  at = bytes.writeUInt8(TEXT_HEADER, at);
  at = bytes.writeUInt16BE(value.length, at);
  bytes.write(value, at, 'latin1');
  return bytes;
}
