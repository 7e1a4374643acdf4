import type { Schema } from './kind.ts';

/** Parameters of a query, or headers under Node's names, as sent. A repeated parameter is a list. */
export type Sent = Readonly<Record<string, string | string[] | undefined>>;

/** A query parameter or header: a single declaration that reads values and describes them for OpenAPI. */
export interface Parameter<T> {
  /** Reads the value from all parameters. Fails with `invalid_request`. */
  readonly read: (sent: Sent, name: string) => T;
  readonly schema: Schema;
  readonly isRequired?: boolean;
  /** The name that callers use, where the table uses another. */
  readonly wireName?: string;
}

export type Parameters<T> = { readonly [K in keyof T]: Parameter<T[K]> };

/** The type that a table of parameters reads. */
export type ParametersOf<P> = { -readonly [K in keyof P]: P[K] extends Parameter<infer T> ? T : never };

/** Reads every parameter in the order of the table. Fails with `invalid_request` at the first wrong one. */
export function readParameters<T extends object>(parameters: Parameters<T>, sent: Sent): T {
  const names = Object.keys(parameters) as (keyof T & string)[];
  return Object.fromEntries(names.map(name => [name, parameters[name].read(sent, name)])) as T;
}

/** Returns the parameters in the form that a route's documentation uses. */
export function describeParameters<T extends object>(parameters: Parameters<T>): Schema {
  const entries = Object.entries(parameters) as [string, Parameter<unknown>][];
  const shown = entries.map(([name, parameter]) => ({ ...parameter, name: parameter.wireName ?? name }));
  const needed = shown.filter(({ isRequired }) => isRequired).map(({ name }) => name);
  return {
    type: 'object',
    ...(needed.length === 0 ? {} : { required: needed }),
    properties: Object.fromEntries(shown.map(({ name, schema }) => [name, schema])),
  };
}

/** A header. Calls read some headers, so `read` and `isSent` allocate nothing when the header is absent. */
export class Header<T> implements Parameter<T> {
  readonly wireName: string;
  readonly schema: Schema;
  readonly #key: string;
  readonly #absent: T;
  readonly #parse: (text: string, name: string) => T;

  /** `parse` returns the value of a text, or fails with `invalid_request`. */
  constructor(wireName: string, schema: Schema, absent: T, parse: (text: string, name: string) => T) {
    this.wireName = wireName;
    this.schema = { type: 'string', ...schema };
    this.#key = wireName.toLowerCase();
    this.#absent = absent;
    this.#parse = parse;
  }

  isSent(headers: Sent): boolean {
    return headers[this.#key] !== undefined;
  }

  /** Reads the header. Node joins most repeated headers; this joins the few that Node leaves as lists. */
  read(headers: Sent): T {
    const value = headers[this.#key];
    if (value === undefined) return this.#absent;
    return this.#parse(Array.isArray(value) ? value.join(',') : value, this.wireName);
  }
}
