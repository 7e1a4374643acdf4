import { randomUUID } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isJsonObject, type JsonObject, readBody } from '../../core/json.ts';

/** Size from which a body is not parsed as a whole, which would hold up all other requests. */
const LARGE_BYTES = 1024 * 1024;
/** Characters of Base64 that are decoded in one turn of the event loop. A multiple of 4. */
const SLICE_CHARS = 256 * 1024;
const FIELD = '"ZipFile"';
/** Fields of requests that have a `ZipFile`. */
const CODE_FIELDS = ['Code', 'Content'];
const COLON = 0x3a;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const SPACES: readonly number[] = [0x20, 0x09, 0x0a, 0x0d];

/**
 * Reads a request with code. The `ZipFile` of a large request is a `Buffer` already if it is Base64: its text
 * was cut out before the rest was parsed, and decoded in slices. Fails with `invalid_request`.
 */
export async function readCodeBody(bytes: Buffer): Promise<JsonObject> {
  const text = bytes.length < LARGE_BYTES ? null : findText(bytes);
  const zip = text === null ? null : await decode(bytes.subarray(text.from, text.to));
  if (text === null || zip === null) return readBody(bytes);
  const mark = randomUUID();
  const sent = readBody(Buffer.concat([bytes.subarray(0, text.from), Buffer.from(mark), bytes.subarray(text.to)]));
  if (sent.ZipFile === mark) return { ...sent, ZipFile: zip };
  for (const name of CODE_FIELDS) {
    const part = sent[name];
    if (isJsonObject(part) && part.ZipFile === mark) return { ...sent, [name]: { ...part, ZipFile: zip } };
  }
  // The text belongs to another field, or a second field of this name follows.
  return readBody(bytes);
}

/** Returns the place of the text in the first field `ZipFile`. null: there is none, or it has escapes. */
function findText(bytes: Buffer): { readonly from: number; readonly to: number } | null {
  const field = bytes.indexOf(FIELD);
  if (field < 0) return null;
  let at = behindSpaces(bytes, field + FIELD.length);
  if (bytes[at] !== COLON) return null;
  at = behindSpaces(bytes, at + 1);
  if (bytes[at] !== QUOTE) return null;
  const from = at + 1;
  const to = bytes.indexOf(QUOTE, from);
  return to < 0 || bytes.subarray(from, to).includes(BACKSLASH) ? null : { from, to };
}

function behindSpaces(bytes: Buffer, from: number): number {
  let at = from;
  while (SPACES.includes(bytes[at] as number)) at += 1;
  return at;
}

/** Decodes Base64 in slices. Returns null if it has other characters. */
async function decode(text: Buffer): Promise<Buffer | null> {
  const decoded = Buffer.allocUnsafeSlow(Math.ceil(text.length / 4) * 3);
  let size = 0;
  for (let at = 0; at < text.length; at += SLICE_CHARS) {
    const slice = text.toString('latin1', at, Math.min(at + SLICE_CHARS, text.length));
    const written = decoded.write(slice, size, 'base64');
    if (written !== Buffer.byteLength(slice, 'base64')) return null;
    size += written;
    await nextTurn();
  }
  return decoded.subarray(0, size);
}
