import { isUtf8 } from 'node:buffer';
import { type ErrorDetails, invalidRequest, messageOf, type ServiceError } from './error.ts';
import type { Problem } from './problem.ts';

/** A parsed JSON object. */
export type JsonObject = Readonly<Record<string, unknown>>;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export type ParsedJson =
  | { readonly ok: true; readonly value: unknown }
  /**
   * `word` is the parser's message, which completes `invalid request body: `. The message quotes at most one
   * character of the input.
   */
  | { readonly ok: false; readonly word: string };

/** Reads JSON bytes. Bytes that are not UTF-8 are not JSON. */
export function parseJson(bytes: Buffer): ParsedJson {
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) {
    return { ok: false, word: 'the body is compressed (gzip): send it as it is, without Content-Encoding' };
  }
  if (!isUtf8(bytes)) return { ok: false, word: 'the body is not UTF-8' };
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
    return { ok: false, word: 'the body begins with a byte order mark (U+FEFF), which JSON must not have' };
  }
  try {
    return { ok: true, value: JSON.parse(bytes.toString()) };
  } catch (error) {
    return { ok: false, word: messageOf(error).replace(QUOTED, '$1 in JSON') };
  }
}

/**
 * V8 quotes a short body in full, and the log keeps the message. Such a body may be a bare secret or token.
 */
const QUOTED = /^(Unexpected token '.+?'), .* is not valid JSON$/su;

/** Makes the error `invalid request body: <what>`. */
export function invalidBody(what: string, details?: ErrorDetails): ServiceError {
  return invalidRequest(`invalid request body: ${what}`, details);
}

/** Fails a request with its first problem. */
export const failAtFirst: Problem = Object.assign(
  (path: string, text: string) => {
    throw invalidBody(`${path} ${text}`);
  },
  { isStepwise: true },
);

/** Reads a body that must be a JSON object. Fails with `invalid_request`. */
export function readBody(bytes: Buffer | undefined, details?: ErrorDetails, notObject = 'the body must be an object') {
  const parsed = parseJson(bytes ?? Buffer.alloc(0));
  if (!parsed.ok) throw invalidBody(parsed.word, details);
  if (!isJsonObject(parsed.value)) throw invalidBody(notObject, details);
  return parsed.value;
}
