import { META_CODES } from '../../core/codes.ts';
import { Away } from '../../core/error.ts';
import { type JsonObject, readBody } from '../../core/json.ts';
import type { Kind, Schema } from '../../core/kind.ts';
import { LIMITS } from '../../core/limits.ts';
import type { Parameter, Sent } from '../../core/parameter.ts';
import { type Checked, quote } from '../../core/problem.ts';
import { object } from '../../core/shape.ts';
import { unknownFieldWarnings } from '../../core/unknown-names.ts';
import { normalizeVersion } from '../../core/urn.ts';
import type { ErrorTable } from '../../http/answer.ts';
import { type RequestWithBody, readRequest as readRequestBody } from '../../http/request.ts';
import { wrongRequest } from '../../registry/errors.ts';

/** Parses a body that has to be a JSON object. Fails with `invalid_request` (130600). */
export function readObject(body: unknown): JsonObject {
  return readBody(body as Buffer | undefined, { number: META_CODES.notJson.code }, 'it must be an object');
}

/** Parses an optional body that has to be a JSON object. Fails with `invalid_request` (130600). */
export function readOptionalObject(body: unknown): JsonObject {
  return body === undefined || (body as Buffer).length === 0 ? {} : readObject(body);
}

const NO_FIELDS = object<Record<string, never>>({});

/** Warns about each field of the body, for an operation that reads no body. Fails as `readObject` does. */
export function readNoFields(request: RequestWithBody): void {
  request.warnings = unknownFieldWarnings(NO_FIELDS, readOptionalObject(request.body));
}

/**
 * Parses a body with `read`, and stores warnings about the fields that `shape` does not have.
 * The answer contains these warnings for success and failure.
 * Fails with `invalid_request`: 130600, or 4104 with every problem.
 */
export function readRequest<T>(
  request: RequestWithBody,
  shape: Kind<unknown>,
  read: (body: JsonObject) => Checked<T>,
): T {
  return accept(readRequestBody(request, shape, read, readObject));
}

/**
 * Returns the member `warnings` for the end of an answer that is written as text, or `''` without warnings.
 */
export function warningsMember(warnings: readonly string[] | null): string {
  return warnings === null || warnings.length === 0 ? '' : `,"warnings":${JSON.stringify(warnings)}`;
}

/** Returns the parsed value. Fails with all its problems in one error (4104). */
export function accept<T>(checked: Checked<T>): T {
  if (!checked.ok) throw wrongRequest(checked.problems);
  return checked.value;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** HTTP status of a request that is invalid by itself, where the specification lists no 400. */
    wrongRequestStatus?: 200;
  }
}

/**
 * Maps each error to a status of the meta_service.
 * A request that is invalid by itself: 400, or 200 if its route says so.
 * A request that conflicts with stored records: 200 with its code.
 * A fault of the service: 500, or 503 if it is temporary (the database of several replicas is unreachable).
 */
export const metaErrors: ErrorTable = (error, request) => {
  const { number } = error;
  const body = { code: number ?? META_CODES.internal.code, message: error.message, ...error.body };
  switch (error.code) {
    case 'invalid_request': {
      const status = number === META_CODES.notJson.code ? 400 : (request.route.wrongRequestStatus ?? 400);
      return { status, body: { ...body, code: number ?? META_CODES.invalid.code } };
    }
    case 'not_found':
    case 'already_exists':
    case 'failed_precondition':
      return { status: number === undefined ? 500 : 200, body };
    case 'permission_denied':
      return { status: 403, body: { ...body, code: 403 } };
    case 'resource_exhausted':
      return { status: 429, body: { ...body, code: 429 } };
    default:
      return error instanceof Away ? { status: 503, body: { ...body, code: 503 } } : { status: 500, body };
  }
};

/** A page of a list, counted from 1. */
interface Page {
  /**
   * Page number for the computation of an offset. Limited to `MAX_PAGE`, so that the offset is exact.
   * All pages beyond the end of a list are equally empty.
   */
  readonly index: number;
  /** The page number as sent, without leading zeros. */
  readonly text: string;
}

const MAX_PAGE = 2 ** 40;

/**
 * Returns the value of a parameter, or `''` when it is absent.
 * Fails with `invalid_request` (4104) when it is repeated.
 */
export function queryText(query: Sent, name: string): string {
  const value = query[name] ?? '';
  if (typeof value === 'string') return value;
  throw wrongRequest([`${name} must be given once`]);
}

function text(schema: Schema = {}): Parameter<string> {
  return { schema: { type: 'string', ...schema }, read: queryText };
}

/** A parameter with a normalized version, under its own name or as `version`. `''` when absent. */
function version(schema: Schema): Parameter<string> {
  return {
    ...text(schema),
    read: (query, name) => {
      const version = normalizeVersion(queryText(query, name));
      const alias = normalizeVersion(queryText(query, 'version'));
      if (version !== '' && alias !== '' && version !== alias) {
        throw wrongRequest([`${name} "${version}" and version "${alias}" differ`]);
      }
      return version || alias;
    },
  };
}

/** A parameter with a positive decimal integer. `range.default` when it is absent or empty. */
function positive(range: { readonly default: number; readonly max: number }): Parameter<number> {
  const { default: absent, max } = range;
  return {
    schema: { type: 'integer', minimum: 1, maximum: max, default: absent },
    read: (query, name) => {
      const sent = queryText(query, name);
      if (sent === '') return absent;
      const number = Number(sent);
      if (/^\d+$/.test(sent) && number >= 1 && number <= max) return number;
      throw wrongRequest([`${name} must be an integer between 1 and ${max}, got ${quote(sent)}`]);
    },
  };
}

/** A parameter with a page number. The first page when absent or empty; with `least` 0 also for 0. */
function page(schema: Schema, least: 0 | 1 = 1): Parameter<Page> {
  const expected = least === 0 ? 'a whole number from 0' : 'a positive integer';
  return {
    schema: { type: 'integer', minimum: least, default: 1, ...schema },
    read: (query, name) => {
      const sent = queryText(query, name);
      if (sent === '' || (least === 0 && /^0+$/.test(sent))) return { index: 1, text: '1' };
      const text = /^\d+$/.test(sent) ? sent.replace(/^0+/, '') : '';
      if (text === '') throw wrongRequest([`${name} must be ${expected}, got ${quote(sent)}`]);
      return { index: Math.min(Number(text), MAX_PAGE), text };
    },
  };
}

/** The parameter may also be called `version`. If both are present, they must agree. */
const EXACT = { description: 'Exact; `latest` is another spelling of `$latest`. May also be called `version`.' };

const PAGES = { pageIndex: page({ description: 'From 1.' }), pageSize: positive(LIMITS.functionList) };

export const FUNCTIONS_QUERY = {
  versionNumber: version(EXACT),
  name: text({ description: 'Part of the name; case counts.' }),
  ...PAGES,
};

/** Required, but the handler also accepts a URN that names the version. */
export const FUNCTION_QUERY = { versionNumber: { ...version({ minLength: 1, ...EXACT }), isRequired: true } };

export const FUNCTION_DELETE_QUERY = {
  versionNumber: version({ description: 'Empty or `$latest`: the whole function. May also be called `version`.' }),
};

export const VERSIONS_QUERY = PAGES;

export const POOLS_QUERY = {
  id: text({ description: 'Exact.' }),
  group: text({ description: 'Exact.' }),
  limit: positive(LIMITS.poolList),
  offset: page({ description: 'The page, from 1; 0 means 1.' }, 0),
};

export const POOLS_DELETE_QUERY = { id: text(), group: text() };
