import type { Schema } from '../core/kind.ts';
import { LIMITS } from '../core/limits.ts';
import type { Parameter, Sent } from '../core/parameter.ts';
import { quote } from '../core/problem.ts';
import { normalizeVersion } from '../core/urn.ts';
import { wrongRequest } from '../registry/errors.ts';

/** A page of a list, counted from 1. */
interface Page {
  /** To compute an offset from, which stays an exact number: pages that no list reaches are all as empty as this one. */
  readonly index: number;
  /** As it was asked for. */
  readonly text: string;
}

const MAX_PAGE = 2 ** 40;

/** The value of a parameter, `''` when it is absent. Fails with `invalid_request` (4104) when it is repeated. */
export function queryText(query: Sent, name: string): string {
  const value = query[name] ?? '';
  if (typeof value === 'string') return value;
  throw wrongRequest([`${name} must be given once`]);
}

function text(schema: Schema = {}): Parameter<string> {
  return { schema: { type: 'string', ...schema }, read: queryText };
}

/** A version, normalized, under this name or as `version`; `''` when there is none. */
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

/** A positive decimal integer; `absent` when the parameter is absent or empty. */
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

/** A page, the first when the parameter is absent or empty; with `least` 0 also when it is 0. */
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

/** The parameter may also be called `version`; both together have to agree. */
const EXACT = { description: 'Exact; `latest` is another spelling of `$latest`. May also be called `version`.' };

const PAGES = { pageIndex: page({ description: 'From 1.' }), pageSize: positive(LIMITS.functionList) };

export const FUNCTIONS_QUERY = {
  versionNumber: version(EXACT),
  name: text({ description: 'Part of the name; case counts.' }),
  ...PAGES,
};

/** A rule of its own lets a URN name the version instead. */
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
