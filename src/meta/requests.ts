import { META_CODES } from '../core/codes.ts';
import { type JsonObject, readBody } from '../core/json.ts';
import type { Kind } from '../core/kind.ts';
import { type Checked, quote } from '../core/problem.ts';
import { normalizeVersion } from '../core/urn.ts';
import { type RequestWithBody, readRequest as readRequestBody } from '../http/request.ts';
import { wrongRequest } from '../registry/errors.ts';

/** Query parameters as they were sent: a repeated one is a list. */
export type Query = Readonly<Record<string, string | string[] | undefined>>;

/** A body that has to be a JSON object. Fails with `invalid_request` (130600). */
export function readObject(body: unknown): JsonObject {
  return readBody(body as Buffer | undefined, { number: META_CODES.notJson.code }, 'it must be an object');
}

/**
 * The body of a request as `read` understands it; the answer will name the fields that `shape` does not have, whether it succeeds or
 * not. Fails with `invalid_request`: 130600, or 4104 with every problem.
 */
export function readRequest<T>(
  request: RequestWithBody,
  shape: Kind<unknown>,
  read: (body: JsonObject) => Checked<T>,
): T {
  return accept(readRequestBody(request, shape, read, readObject));
}

/** The member `warnings` at the end of an answer that is written as text; `''` when there is nothing to warn of. */
export function warningsMember(warnings: readonly string[] | null): string {
  return warnings === null || warnings.length === 0 ? '' : `,"warnings":${JSON.stringify(warnings)}`;
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
  throw wrongRequest([`${name} must be an integer between 1 and ${max}, got ${quote(value)}`]);
}

/** A page of a list, counted from 1. */
export interface QueriedPage {
  /** To compute an offset from, which stays an exact number: pages that no list reaches are all as empty as this one. */
  readonly index: number;
  /** As it was asked for. */
  readonly text: string;
}

/** The page that is asked for, the first when the parameter is absent or empty. */
export function queryPage(query: Query, name: string): QueriedPage {
  const value = queryText(query, name);
  if (value === '') return { index: 1, text: '1' };
  const text = /^\d+$/.test(value) ? value.replace(/^0+/, '') : '';
  if (text === '') throw wrongRequest([`${name} must be a positive integer, got ${quote(value)}`]);
  return { index: Math.min(Number(text), MAX_PAGE), text };
}

const MAX_PAGE = 2 ** 40;
