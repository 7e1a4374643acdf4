import type { Schema } from '../../core/kind.ts';
import { LIMITS } from '../../core/limits.ts';
import type { Parameter, Sent } from '../../core/parameter.ts';
import { quote } from '../../core/problem.ts';
import { normalizeVersion } from '../../core/urn.ts';
import { wrongRequest } from '../../registry/errors.ts';

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
