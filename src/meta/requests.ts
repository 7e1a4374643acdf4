import { META_CODES } from '../core/codes.ts';
import { invalidRequest } from '../core/error.ts';
import { isJsonObject, type JsonObject, quote } from '../core/field-reader.ts';
import type { Checked } from '../core/function-fields.ts';
import { parseJson } from '../core/json.ts';
import { normalizeVersion } from '../core/urn.ts';
import { wrongRequest } from '../registry/errors.ts';

/** Query parameters as they were sent: a repeated one is a list. */
export type Query = Readonly<Record<string, string | string[] | undefined>>;

/** A body that has to be a JSON object. Fails with `invalid_request` (130600). */
export function readObject(body: unknown): JsonObject {
  const parsed = parseJson((body as Buffer | undefined) ?? Buffer.alloc(0));
  if (!parsed.ok) throw notJson(parsed.word);
  if (!isJsonObject(parsed.value)) throw notJson('it must be an object');
  return parsed.value;
}

function notJson(word: string) {
  return invalidRequest(`invalid request body: ${word}`, { number: META_CODES.notJson.code });
}

/** What was read, or every problem of it as one error (4104). */
export function accept<T>(checked: Checked<T>): T {
  if (!checked.ok) throw wrongRequest(checked.problems);
  return checked.value;
}

/** The value of a parameter, `''` when it is absent. Fails with `invalid_request` (4104) when it is repeated. */
export function queryText(query: Query, name: string): string {
  const value = query[name] ?? '';
  if (typeof value === 'string') return value;
  throw wrongRequest([`${name} must be given once`]);
}

/** The version that is asked for, normalized, under both names of the parameter; `''` when there is none. */
export function queryVersion(query: Query): string {
  const version = normalizeVersion(queryText(query, 'versionNumber'));
  const alias = normalizeVersion(queryText(query, 'version'));
  if (version !== '' && alias !== '' && version !== alias) {
    throw wrongRequest([`versionNumber "${version}" and version "${alias}" differ`]);
  }
  return version || alias;
}

/** A positive decimal integer; `absent` when the parameter is absent or empty. */
export function queryPositive(query: Query, name: string, absent: number, max: number): number {
  const value = queryText(query, name);
  if (value === '') return absent;
  const number = Number(value);
  if (/^\d+$/.test(value) && number >= 1 && number <= max) return number;
  const expected = max === MAX_PAGE ? 'a positive integer' : `an integer between 1 and ${max}`;
  throw wrongRequest([`${name} must be ${expected}, got ${quote(value)}`]);
}

/** A page that no list reaches; its offset stays an exact number. */
export const MAX_PAGE = 2 ** 40;
