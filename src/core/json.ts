import { isUtf8 } from 'node:buffer';
import { type ErrorDetails, invalidRequest, messageOf, type ServiceError } from './error.ts';
import type { Problem } from './problem.ts';

/** A JSON object as it was parsed. */
export type JsonObject = Readonly<Record<string, unknown>>;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export type ParsedJson =
  | { readonly ok: true; readonly value: unknown }
  /** `word`: the parser's word, to stand behind `invalid request body: `. It quotes no more than one character of what was sent. */
  | { readonly ok: false; readonly word: string };

/** Reads JSON bytes. Bytes that are not UTF-8 are not JSON. */
export function parseJson(bytes: Buffer): ParsedJson {
  if (!isUtf8(bytes)) return { ok: false, word: 'the body is not UTF-8' };
  try {
    return { ok: true, value: JSON.parse(bytes.toString()) };
  } catch (error) {
    return { ok: false, word: messageOf(error).replace(QUOTED, '$1 in JSON') };
  }
}

/** Of a short body V8 quotes all, and its word is logged: that may be a secret or a token, sent without the JSON around it. */
const QUOTED = /^(Unexpected token '.+?'), .* is not valid JSON$/su;

/** `invalid request body: <what>` */
export function invalidBody(what: string, details?: ErrorDetails): ServiceError {
  return invalidRequest(`invalid request body: ${what}`, details);
}

/** Fails a request with what is wrong first. */
export const failAtFirst: Problem = Object.assign(
  (path: string, text: string) => {
    throw invalidBody(`${path} ${text}`);
  },
  { isStepwise: true },
);

/** A body that has to be a JSON object. Fails with `invalid_request`. */
export function readBody(bytes: Buffer | undefined, details?: ErrorDetails, notObject = 'the body must be an object') {
  const parsed = parseJson(bytes ?? Buffer.alloc(0));
  if (!parsed.ok) throw invalidBody(parsed.word, details);
  if (!isJsonObject(parsed.value)) throw invalidBody(notObject, details);
  return parsed.value;
}
