import { isJsonObject, type JsonObject } from './json.ts';
import { type DescribeOptions, type Kind, type Schema, wrongAt } from './kind.ts';
import type { Problem } from './problem.ts';

/** A field of a request: the single declaration of its kind, its value when absent, and its meaning. */
export interface Field<T> {
  readonly kind: Kind<T>;
  /** The value when the field is absent or null. */
  readonly absent: T;
  /**
   * Present if the field is required. The text follows the path in the error; `''`: a rule of the object
   * reports it.
   */
  readonly missing?: string;
  /** Shown in the document in addition to the kind. */
  readonly doc: Schema;
}

export type Fields<T> = { readonly [K in keyof T]: Field<T[K]> };

/** The type that a table of fields reads. */
export type ValueOf<F> = { -readonly [K in keyof F]: F[K] extends Field<infer T> ? T : never };

export function required<T>(kind: Kind<T>, doc: string | Schema = {}, missing = 'is required'): Field<T> {
  return { kind, absent: undefined as T, missing, doc: docOf(doc) };
}

/** Declares a required field whose absence a rule of the object reports, from the value `absent`. */
export function requiredByRule<T>(kind: Kind<T>, absent: T, doc: string | Schema = {}): Field<T> {
  return { kind, absent, missing: '', doc: docOf(doc) };
}

/**
 * Declares an optional field. The document shows `absent` as the default if it is a number, a flag or a text.
 */
export function optional<T>(kind: Kind<T>, absent: T, doc: string | Schema = {}): Field<T> {
  const hasDefault = ['number', 'boolean'].includes(typeof absent) || (typeof absent === 'string' && absent !== '');
  return { kind, absent, doc: { ...(hasDefault ? { default: absent } : {}), ...docOf(doc) } };
}

/** Declares a field that the request may omit; its value is then undefined. */
export function maybe<T>(kind: Kind<T>, doc: string | Schema = {}): Field<T | undefined> {
  return { kind, absent: undefined, doc: docOf(doc) };
}

function docOf(doc: string | Schema): Schema {
  return typeof doc === 'string' ? { description: doc } : doc;
}

/** The kind of an object with these fields. Each field keeps the type of its own kind, for `Form`. */
export interface ObjectKind<T> extends Kind<T> {
  readonly fields: Fields<T>;
}

interface ObjectRules {
  readonly isMode?: boolean;
  /** True if other fields are allowed; the service does not warn about them. */
  readonly isFree?: boolean;
  readonly schema?: Schema;
}

export function object<T extends object>(fields: Fields<T>, rules: ObjectRules = {}): ObjectKind<T> {
  const absent = absentValues(fields);
  return {
    fields,
    isMode: rules.isMode ?? false,
    isFree: rules.isFree ?? false,
    describe: options => ({ ...describeFields(fields, options), ...rules.schema }),
    read(value, path, problem) {
      if (!isJsonObject(value)) return wrongAt(path, 'must be an object', problem);
      const { present, ok } = readPresent(fields, value, path, problem);
      return ok ? { ...absent, ...present } : undefined;
    },
  };
}

function describeFields<T extends object>(fields: Fields<T>, options: DescribeOptions = {}): Schema {
  const entries = Object.entries(fields) as [string, Field<unknown>][];
  const needed = entries.filter(([, { missing }]) => missing !== undefined).map(([name]) => name);
  const properties = entries.map(([name, { kind, doc, missing }]) => {
    const schema = { ...kind.describe(options), ...doc };
    return [name, options.nulls && missing === undefined ? { anyOf: [schema, { type: 'null' }] } : schema];
  });
  return {
    type: 'object',
    ...(needed.length === 0 ? {} : { required: needed }),
    properties: Object.fromEntries(properties),
  };
}

/** Returns every field's value when absent. */
export function absentValues<T extends object>(fields: Fields<T>): T {
  const keys = Object.keys(fields) as (keyof T)[];
  return Object.fromEntries(keys.map(key => [key, fields[key].absent])) as T;
}

/** Makes fields for an update, where absent fields keep their values. */
export function kept<T extends object>(fields: Fields<T>): { readonly [K in keyof T]: Field<T[K] | undefined> } {
  const entries = Object.entries(fields) as [string, Field<unknown>][];
  return Object.fromEntries(
    entries.map(([name, { kind, doc }]) => {
      const { default: _none, ...shown } = doc;
      return [name, maybe(kind, shown)];
    }),
  ) as { readonly [K in keyof T]: Field<T[K] | undefined> };
}

/** Notes required fields that are absent, before the fields that are present are checked. */
export function noteMissing<T extends object>(fields: Fields<T>, source: JsonObject, problem: Problem): void {
  for (const [name, { missing }] of Object.entries(fields) as [string, Field<unknown>][]) {
    if (missing && (source[name] ?? null) === null) problem(name, missing);
  }
}

/** Reads the fields that are present and valid; `ok` if none is wrong or missing. */
export function readPresent<T extends object>(
  fields: Fields<T>,
  source: JsonObject,
  path: string,
  problem: Problem,
): { readonly present: Partial<T>; readonly ok: boolean } {
  const present: Partial<T> = {};
  let ok = true;
  for (const name of Object.keys(fields) as (keyof T & string)[]) {
    const { kind, missing } = fields[name];
    const value = source[name];
    if (value === undefined || value === null) {
      if (!missing) continue;
      problem(join(path, name), missing);
      ok = false;
      continue;
    }
    const result = kind.read(value, join(path, name), problem);
    if (result === undefined) ok = false;
    else present[name] = result;
  }
  return { present, ok };
}

/**
 * An object of a request that is read step by step. The first problem fails the request, so the reader
 * decides the order. `problem` must throw.
 */
export class Form<T extends object> {
  readonly #fields: Fields<T>;
  readonly #source: JsonObject;
  readonly #path: string;
  readonly #problem: Problem;

  constructor({ fields }: ObjectKind<T>, source: unknown, path: string, problem: Problem) {
    if (!isJsonObject(source)) problem(path || 'the body', 'must be an object');
    this.#fields = fields;
    this.#source = source as JsonObject;
    this.#path = path;
    this.#problem = problem;
  }

  /** Returns the whole path of a field, for errors. */
  at(name: keyof T & string): string {
    return join(this.#path, name);
  }

  /** Returns the unchecked value, or undefined when the field is absent or null. */
  sent(name: keyof T & string): unknown {
    return this.#source[name] ?? undefined;
  }

  read<K extends keyof T & string>(...names: readonly K[]): Pick<T, K> {
    const table = Object.fromEntries(names.map(name => [name, this.#fields[name]])) as unknown as Fields<Pick<T, K>>;
    const { present } = readPresent(table, this.#source, this.#path, this.#problem);
    return { ...absentValues(table), ...present };
  }

  /**
   * Opens a field that is an object, to read its fields step by step. An absent field counts as an empty
   * object.
   */
  open<K extends keyof T & string>(name: K): Form<NonNullable<T[K]> & object> {
    const kind = this.#fields[name].kind as unknown as ObjectKind<NonNullable<T[K]> & object>;
    return new Form(kind, this.sent(name) ?? {}, this.at(name), this.#problem);
  }
}

export function join(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}
