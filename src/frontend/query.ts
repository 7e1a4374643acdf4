import { invalidRequest, type ServiceError } from '../core/error.ts';

/** Query parameters as they were sent: a repeated one is a list. */
export type Query = Readonly<Record<string, string | string[] | undefined>>;

/** The value of a parameter; undefined when it is absent or empty. Fails with `invalid_request` when it is repeated. */
export function queryText(query: Query, name: string): string | undefined {
  const value = query[name];
  if (Array.isArray(value)) throw badQuery(name, 'given once', value.join(', '));
  return value === '' ? undefined : value;
}

export function queryInteger(query: Query, name: string, range: { min: number; max: number }): number | undefined {
  const value = queryText(query, name);
  if (value === undefined) return undefined;
  const number = Number(value);
  if (!/^\d+$/.test(value) || number < range.min || number > range.max) {
    throw badQuery(name, `an integer from ${range.min} to ${range.max}`, value);
  }
  return number;
}

export function queryFlag(query: Query, name: string): boolean {
  const value = queryText(query, name);
  if (value === undefined || value === 'false') return false;
  if (value === 'true') return true;
  throw badQuery(name, 'true or false', value);
}

/** `invalid query: <name> must be <expected>, got "<value>"` */
export function badQuery(name: string, expected: string, value: string): ServiceError {
  return invalidRequest(`invalid query: ${name} must be ${expected}, got "${value}"`);
}
