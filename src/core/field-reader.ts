import { noteAsked } from './unknown-fields.ts';

/** A JSON object as it was parsed. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** Notes what is wrong with one field; `path` is the whole path (`rootfs.imageurl`). */
export type Problem = (path: string, text: string) => void;

/** Reads a value that is there (neither absent nor null). Calls `problem` and answers undefined when it is wrong. */
export interface Read<T> {
  (value: unknown, path: string, problem: Problem): T | undefined;
  /** Of a reader of objects with certain fields: an object whose fields are known to be those (`unknown-fields.ts`). */
  readonly standIn?: object;
}

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Problems in the order in which they were found, as sentences; the first of each field counts. */
export class Problems {
  readonly found: string[] = [];
  readonly #paths = new Set<string>();
  readonly add: Problem = (path, text) => {
    if (this.found.length >= MAX_PROBLEMS || this.#paths.has(path)) return;
    if (path !== '') this.#paths.add(path);
    this.found.push(path === '' ? text : `${path} ${text}`);
  };

  get any(): boolean {
    return this.found.length > 0;
  }

  toString(): string {
    return this.found.join('; ');
  }
}

/** An answer stays readable: a map of 10 000 wrong values is told by its first ones. */
const MAX_PROBLEMS = 32;

/** How much of a wrong value an error repeats. */
const MAX_QUOTED_CHARS = 80;

export function quote(value: unknown): string {
  if (isTooDeep(value)) return Array.isArray(value) ? '[…]' : '{…}';
  const text = JSON.stringify(value) ?? String(value);
  return text.length <= MAX_QUOTED_CHARS ? text : `${text.slice(0, MAX_QUOTED_CHARS)}…`;
}

/** How deep a value of any shape may go: writing one costs stack, level by level. */
const MAX_LEVELS = 100;

function isTooDeep(value: unknown, levels = MAX_LEVELS): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some(item => isTooDeep(item, levels - 1));
}

interface TextRules {
  readonly maxChars: number;
  readonly required?: boolean;
  readonly pattern?: RegExp;
  /** What `pattern` means, after "must be". An empty text passes unless it is required. */
  readonly shape?: string;
}

export function text({ maxChars, required = false, pattern, shape = '' }: TextRules): Read<string> {
  return (value, path, problem) => {
    if (typeof value !== 'string') return problem(path, 'must be a string') as undefined;
    if (value === '' && required) return problem(path, 'is required') as undefined;
    if (value.length > maxChars) {
      return problem(path, `must have at most ${maxChars} characters, got ${value.length}`) as undefined;
    }
    if (value.includes('\0')) return problem(path, 'must not have a NUL character') as undefined;
    if (value !== '' && pattern && !pattern.test(value)) {
      return problem(path, `must be ${shape}, got ${quote(value)}`) as undefined;
    }
    return value;
  };
}

/** One of `values`; an empty text passes when it is one of them. */
export function oneOf<const T extends string>(values: readonly T[]): Read<T> {
  return (value, path, problem) => {
    if (typeof value !== 'string') return problem(path, 'must be a string') as undefined;
    const found = values.find(known => known === value);
    if (found !== undefined) return found;
    const named = values.filter(known => known !== '').map(known => `"${known}"`);
    return problem(path, `must be one of ${named.join(', ')}, got ${quote(value)}`) as undefined;
  };
}

export function integer(min: number, max: number): Read<number> {
  return (value, path, problem) => {
    if (typeof value !== 'number' || !Number.isInteger(value)) return problem(path, 'must be an integer') as undefined;
    return inRange(value, min, max, path, problem);
  };
}

/** An integer, or a text of decimal digits. */
export function integerOrDigits(min: number, max: number): Read<number> {
  return (value, path, problem) => {
    const number = typeof value === 'string' && /^-?\d{1,15}$/.test(value) ? Number(value) : value;
    if (typeof number !== 'number' || !Number.isInteger(number)) {
      return problem(path, `must be an integer or a string of decimal digits, got ${quote(value)}`) as undefined;
    }
    return inRange(number, min, max, path, problem);
  };
}

function inRange(value: number, min: number, max: number, path: string, problem: Problem): number | undefined {
  if (value < min || value > max) return problem(path, `must be between ${min} and ${max}, got ${value}`) as undefined;
  return value === 0 ? 0 : value;
}

export const boolean: Read<boolean> = (value, path, problem) =>
  typeof value === 'boolean' ? value : (problem(path, 'must be a boolean') as undefined);

export const anything: Read<unknown> = (value, path, problem) =>
  isTooDeep(value) ? problem(path, `must have at most ${MAX_LEVELS} levels of arrays and objects`) : value;

export const anyObject: Read<JsonObject> = (value, path, problem) => {
  if (!isJsonObject(value)) return problem(path, 'must be an object') as undefined;
  return anything(value, path, problem) as JsonObject | undefined;
};

/** A map whose values are all read by `read`; null inside it is a wrong value. `checkKey` answers what is wrong with a name. */
export function mapOf<T>(read: Read<T>, checkKey?: (key: string) => string | undefined): Read<Record<string, T>> {
  return (value, path, problem) => {
    if (!isJsonObject(value)) return problem(path, 'must be an object') as undefined;
    const entries: [string, T][] = [];
    let wrong = false;
    for (const [key, item] of Object.entries(value)) {
      const problemOfKey = checkKey?.(key);
      if (problemOfKey !== undefined) problem(`${path}.${key.slice(0, MAX_QUOTED_CHARS)}`, problemOfKey);
      const result = read(item, `${path}.${key.slice(0, MAX_QUOTED_CHARS)}`, problem);
      if (result === undefined || problemOfKey !== undefined) wrong = true;
      else entries.push([key, result]);
    }
    return wrong ? undefined : Object.fromEntries(entries);
  };
}

export function listOf<T>(read: Read<T>, maxItems: number): Read<T[]> {
  return (value, path, problem) => {
    if (!Array.isArray(value)) return problem(path, 'must be an array') as undefined;
    if (value.length > maxItems) return problem(path, `must have at most ${maxItems} items`) as undefined;
    const items = value.map((item, index) => read(item, `${path}[${index}]`, problem));
    return items.includes(undefined) ? undefined : (items as T[]);
  };
}

/** The fields of an object: how each is read, and what it is when absent or null. */
export type FieldTable<T> = { readonly [K in keyof T]: { readonly read: Read<T[K]>; readonly absent: T[K] } };

export function objectOf<T extends object>(fields: FieldTable<T>): Read<T> {
  const absent = absentValues(fields);
  const read: Read<T> = (value, path, problem) => {
    if (!isJsonObject(value)) return problem(path, 'must be an object') as undefined;
    const { present, ok } = readPresent(fields, value, path, problem);
    return ok ? { ...absent, ...present } : undefined;
  };
  const standIn = {};
  readPresent(fields, standIn, '', () => undefined);
  return Object.assign(read, { standIn });
}

/** Every field's value when absent. */
export function absentValues<T extends object>(fields: FieldTable<T>): T {
  const keys = Object.keys(fields) as (keyof T)[];
  return Object.fromEntries(keys.map(key => [key, fields[key].absent])) as T;
}

/** The fields that are there and right; `ok` when none was wrong. */
export function readPresent<T extends object>(
  fields: FieldTable<T>,
  source: JsonObject,
  path: string,
  problem: Problem,
): { readonly present: Partial<T>; readonly ok: boolean } {
  const present: Partial<T> = {};
  let ok = true;
  for (const key of Object.keys(fields) as (keyof T & string)[]) {
    const value = source[key];
    noteAsked(source, key, fields[key].read.standIn);
    if (value === undefined || value === null) continue;
    const result = fields[key].read(value, path === '' ? key : `${path}.${key}`, problem);
    if (result === undefined) ok = false;
    else present[key] = result;
  }
  return { present, ok };
}
