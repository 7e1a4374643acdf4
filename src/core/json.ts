import { isUtf8 } from 'node:buffer';
import { invalidRequest, messageOf, type ServiceError } from './error.ts';
import { isJsonObject } from './field-reader.ts';
import { noteAsked, unknownFieldWarnings } from './unknown-fields.ts';

export type ParsedJson =
  | { readonly ok: true; readonly value: unknown }
  /** `word`: the parser's word, to stand behind `invalid request body: `. */
  | { readonly ok: false; readonly word: string };

/** Reads JSON bytes. Bytes that are not UTF-8 are not JSON. */
export function parseJson(bytes: Buffer): ParsedJson {
  if (!isUtf8(bytes)) return { ok: false, word: 'the body is not UTF-8' };
  try {
    return { ok: true, value: JSON.parse(bytes.toString()) };
  } catch (error) {
    return { ok: false, word: messageOf(error) };
  }
}

/** `invalid request body: <what>` */
export function invalidBody(what: string): ServiceError {
  return invalidRequest(`invalid request body: ${what}`);
}

/** A body that has to be a JSON object. Fails with `invalid_request`. */
export function readBody(bytes: Buffer | undefined): Fields {
  const parsed = parseJson(bytes ?? Buffer.alloc(0));
  if (!parsed.ok) throw invalidBody(parsed.word);
  return Fields.of(parsed.value, '');
}

/**
 * Reads the fields of one JSON object strictly: a field that is absent or null is undefined, a wrong type is never coerced
 * (`invalid request body: <path> must be <type>`), unknown fields are ignored and told by `warnings`.
 */
export class Fields {
  readonly #values: Readonly<Record<string, unknown>>;
  readonly #path: string;
  readonly #isFreeForm: boolean;

  private constructor(values: Readonly<Record<string, unknown>>, path: string, isFreeForm: boolean) {
    this.#values = values;
    this.#path = path;
    this.#isFreeForm = isFreeForm;
  }

  /** `path` is where the object stands in the body, `''` for the body itself. */
  static of(value: unknown, path: string): Fields {
    return new Fields(asObject(value, path), path, false);
  }

  /** An object that may have fields which are none of ours: none of them is unknown. */
  static freeForm(value: unknown, path: string): Fields {
    return new Fields(asObject(value, path), path, true);
  }

  /** What to tell of the fields that nobody has asked for; when everything has been read. */
  warnings(): readonly string[] {
    return unknownFieldWarnings(this.#values);
  }

  /** The whole path of a field, as errors name it. */
  pathOf(name: string): string {
    return this.#path === '' ? name : `${this.#path}.${name}`;
  }

  has(name: string): boolean {
    return this.#read(name) !== undefined;
  }

  text(name: string): string | undefined {
    const value = this.#read(name);
    return value === undefined ? undefined : asText(value, this.pathOf(name));
  }

  /** As `text`, a NUL included: for paths of mounts (`core/host-path.ts` says what is wrong with them) and input of programs. */
  rawText(name: string): string | undefined {
    const value = this.#read(name);
    if (value === undefined || typeof value === 'string') return value;
    throw invalidBody(`${this.pathOf(name)} must be a string`);
  }

  /** Present and not empty. */
  requiredText(name: string): string {
    const value = this.text(name);
    if (value === undefined || value === '') throw this.#missing(name);
    return value;
  }

  integer(name: string, range: { readonly min: number; readonly max: number }): number | undefined {
    const value = this.#read(name);
    if (value === undefined) return undefined;
    const path = this.pathOf(name);
    if (!Number.isInteger(value)) throw invalidBody(`${path} must be an integer`);
    return asInRange(value as number, range, path);
  }

  number(name: string, range: { readonly min: number; readonly max: number }): number | undefined {
    const value = this.#read(name);
    if (value === undefined) return undefined;
    const path = this.pathOf(name);
    if (typeof value !== 'number') throw invalidBody(`${path} must be a number`);
    return asInRange(value, range, path);
  }

  boolean(name: string): boolean | undefined {
    const value = this.#read(name);
    if (value === undefined || typeof value === 'boolean') return value;
    throw invalidBody(`${this.pathOf(name)} must be a boolean`);
  }

  object(name: string): Fields | undefined {
    const value = this.#read(name);
    return value === undefined ? undefined : Fields.of(value, this.pathOf(name));
  }

  /** As `object`, and an empty one when it is absent: so a field that belongs into it and was sent elsewhere is known. */
  section(name: string): Fields {
    const found = this.object(name);
    if (found !== undefined) return found;
    const empty = {};
    noteAsked(this.#values, name, empty);
    return Fields.of(empty, this.pathOf(name));
  }

  texts(name: string): string[] | undefined {
    return this.#list(name)?.map((item, index) => asText(item, `${this.pathOf(name)}[${index}]`));
  }

  objects(name: string): Fields[] | undefined {
    return this.#list(name)?.map((item, index) => Fields.of(item, `${this.pathOf(name)}[${index}]`));
  }

  /** A map of texts; null inside it is a wrong type. */
  textMap(name: string): Record<string, string> | undefined {
    const value = this.#read(name);
    if (value === undefined) return undefined;
    const path = this.pathOf(name);
    const entries = Object.entries(asObject(value, path));
    return Object.fromEntries(entries.map(([key, item]) => [key, asText(item, `${path}.${key}`)]));
  }

  /** Of the fields that are there. */
  names(): readonly string[] {
    return Object.keys(this.#values);
  }

  isText(name: string): boolean {
    return typeof this.#values[name] === 'string';
  }

  isList(name: string): boolean {
    return Array.isArray(this.#values[name]);
  }

  #read(name: string): unknown {
    if (!this.#isFreeForm) noteAsked(this.#values, name);
    return this.#values[name] ?? undefined;
  }

  #list(name: string): unknown[] | undefined {
    const value = this.#read(name);
    if (value === undefined || Array.isArray(value)) return value;
    throw invalidBody(`${this.pathOf(name)} must be an array`);
  }

  #missing(name: string): ServiceError {
    return invalidBody(`${this.pathOf(name)} is required`);
  }
}

function asObject(value: unknown, path: string): Readonly<Record<string, unknown>> {
  if (isJsonObject(value)) return value;
  throw invalidBody(`${path || 'the body'} must be an object`);
}

/** A NUL can stand in no path, argument or environment variable, and nothing else that is sent as text needs one. */
function asText(value: unknown, path: string): string {
  if (typeof value !== 'string') throw invalidBody(`${path} must be a string`);
  if (value.includes('\0')) throw invalidBody(`${path} must not contain a NUL character`);
  return value;
}

function asInRange(value: number, { min, max }: { readonly min: number; readonly max: number }, path: string): number {
  if (value < min || value > max) throw invalidBody(`${path} must be between ${min} and ${max}, got ${value}`);
  return value;
}
