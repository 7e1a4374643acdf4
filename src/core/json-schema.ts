import { isJsonObject, type JsonObject } from './json.ts';
import { type Problem, quote } from './problem.ts';

/**
 * JSON Schemas that callers register. The keywords of the tables below are checked. All others are for
 * readers of the schema: `pattern`, `patternProperties` and `format` too, because a hostile regular
 * expression would stop the service.
 */

const TYPES: Readonly<Record<string, { readonly word: string; readonly is: (value: unknown) => boolean }>> = {
  object: { word: 'an object', is: isJsonObject },
  array: { word: 'an array', is: Array.isArray },
  string: { word: 'a string', is: value => typeof value === 'string' },
  number: { word: 'a number', is: value => typeof value === 'number' },
  integer: { word: 'an integer', is: Number.isInteger },
  boolean: { word: 'a boolean', is: value => typeof value === 'boolean' },
  null: { word: 'null', is: value => value === null },
};

/** Keywords by what their values hold. */
const ONE = ['items', 'additionalProperties', 'contains', 'propertyNames', 'not', 'if', 'then', 'else'];
const LISTS = ['allOf', 'anyOf', 'oneOf', 'prefixItems'];
const MAPS = ['properties', '$defs', 'definitions', 'dependentSchemas'];
const NUMBERS = [
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'minLength', 'maxLength'],
  ...['minItems', 'maxItems', 'minProperties', 'maxProperties'],
];

/**
 * Steps of one check, a step being one schema for one value. A schema with nested choices may otherwise take
 * longer than any caller waits.
 */
const MAX_STEPS = 100_000;

type Fault = { readonly path: string; readonly text: string } | null;

/** Notes what is wrong with a schema itself. */
export function checkSchema(schema: JsonObject, path: string, problem: Problem): void {
  const visit = (at: unknown, where: string): void => {
    if (typeof at === 'boolean') return;
    if (!isJsonObject(at)) {
      problem(where, 'must be a JSON Schema: an object, true or false');
      return;
    }
    visitKeywords(at, where, { root: schema, visit, problem });
  };
  visit(schema, path);
}

interface Visit {
  readonly root: JsonObject;
  readonly visit: (at: unknown, where: string) => void;
  readonly problem: Problem;
}

function visitKeywords(at: JsonObject, where: string, { root, visit, problem }: Visit): void {
  const types = at.type === undefined ? [] : [at.type].flat();
  if (types.some(type => typeof type !== 'string' || !Object.hasOwn(TYPES, type))) {
    problem(`${where}.type`, `must be one or a list of ${Object.keys(TYPES).join(', ')}`);
  }
  for (const name of NUMBERS) {
    if (at[name] !== undefined && typeof at[name] !== 'number') problem(`${where}.${name}`, 'must be a number');
  }
  for (const name of ['required', 'enum']) {
    if (at[name] !== undefined && !Array.isArray(at[name])) problem(`${where}.${name}`, 'must be an array');
  }
  const { $ref } = at;
  if ($ref !== undefined && (typeof $ref !== 'string' || resolve(root, $ref) === undefined)) {
    problem(`${where}.$ref`, 'must name a part of the same schema, such as #/$defs/item');
  }
  for (const name of ONE) if (at[name] !== undefined) visit(at[name], `${where}.${name}`);
  for (const name of LISTS) {
    const list = at[name];
    if (list === undefined) continue;
    if (Array.isArray(list)) list.forEach((each, index) => void visit(each, `${where}.${name}[${index}]`));
    else problem(`${where}.${name}`, 'must be an array of schemas');
  }
  for (const name of MAPS) {
    const map = at[name];
    if (map === undefined) continue;
    if (isJsonObject(map)) for (const [key, each] of Object.entries(map)) visit(each, `${where}.${name}.${key}`);
    else problem(`${where}.${name}`, 'must be an object of schemas');
  }
}

/** Returns the part of a schema that a local reference names. undefined: there is none. */
function resolve(root: JsonObject, ref: string): unknown {
  if (ref !== '#' && !ref.startsWith('#/')) return undefined;
  let at: unknown = root;
  for (const step of ref.split('/').slice(1)) {
    const name = decodedStep(step);
    const isKnown = name !== null && typeof at === 'object' && at !== null && Object.hasOwn(at, name);
    if (!isKnown) return undefined;
    at = (at as Record<string, unknown>)[name];
  }
  return at;
}

function decodedStep(step: string): string | null {
  try {
    return decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    return null;
  }
}

/**
 * Returns what is wrong with a value, beginning with the path of the fault below `name`, or null. `schema`
 * has passed `checkSchema`.
 */
export function faultOf(schema: JsonObject, value: unknown, name: string): string | null {
  try {
    const fault = new SchemaCheck(schema).find(schema, value, name);
    return fault && `${fault.path}: ${fault.text}`;
  } catch (error) {
    if (error instanceof TooLong) return `${name}: the check against inputSchema takes more than ${MAX_STEPS} steps`;
    throw error;
  }
}

class TooLong extends Error {}

class SchemaCheck {
  readonly #root: JsonObject;
  /** The references that are followed for the same value. */
  readonly #following = new Set<string>();
  #left = MAX_STEPS;

  constructor(root: JsonObject) {
    this.#root = root;
  }

  find(schema: unknown, value: unknown, path: string): Fault {
    this.#left -= 1;
    if (this.#left < 0) throw new TooLong();
    if (schema === false) return { path, text: 'is not allowed' };
    if (!isJsonObject(schema)) return null;
    return (
      this.#ofType(schema, value, path) ??
      this.#ofReference(schema, value, path) ??
      ofChoice(schema, value, path) ??
      this.#ofChildren(schema, value, path) ??
      this.#ofCombination(schema, value, path)
    );
  }

  #ofType(schema: JsonObject, value: unknown, path: string): Fault {
    const types = schema.type === undefined ? [] : [schema.type].flat().map(type => TYPES[type as string]);
    if (types.length === 0 || types.some(type => type?.is(value))) return null;
    return { path, text: `must be ${types.map(type => type?.word).join(' or ')}, got ${wordOf(value)}` };
  }

  /** A reference to itself for the same value adds no rule. */
  #ofReference({ $ref }: JsonObject, value: unknown, path: string): Fault {
    if (typeof $ref !== 'string') return null;
    const key = `${path}\n${$ref}`;
    if (this.#following.has(key)) return null;
    this.#following.add(key);
    const fault = this.find(resolve(this.#root, $ref), value, path);
    this.#following.delete(key);
    return fault;
  }

  #ofChildren(schema: JsonObject, value: unknown, path: string): Fault {
    if (typeof value === 'string') return ofText(schema, value, path);
    if (typeof value === 'number') return ofNumber(schema, value, path);
    if (Array.isArray(value)) return this.#ofList(schema, value, path);
    return isJsonObject(value) ? this.#ofObject(schema, value, path) : null;
  }

  #ofObject(schema: JsonObject, value: JsonObject, path: string): Fault {
    const names = Object.keys(value);
    this.#left -= names.length;
    const missing = namesIn(schema.required).find(name => !Object.hasOwn(value, name));
    if (missing !== undefined) return { path: `${path}.${missing}`, text: 'is required' };
    const size = ofSize(names.length, schema.minProperties, schema.maxProperties, 'members');
    if (size !== null) return { path, text: size };
    const known = isJsonObject(schema.properties) ? schema.properties : {};
    const isOpen = schema.additionalProperties === undefined || schema.patternProperties !== undefined;
    for (const name of names) {
      const at = `${path}.${name}`;
      const rule = Object.hasOwn(known, name) ? known[name] : isOpen ? true : schema.additionalProperties;
      const fault = this.find(rule, value[name], at) ?? this.find(schema.propertyNames, name, at);
      if (fault !== null) return fault;
    }
    for (const [name, rule] of Object.entries(isJsonObject(schema.dependentSchemas) ? schema.dependentSchemas : {})) {
      const fault = Object.hasOwn(value, name) ? this.find(rule, value, path) : null;
      if (fault !== null) return fault;
    }
    return null;
  }

  #ofList(schema: JsonObject, value: readonly unknown[], path: string): Fault {
    this.#left -= value.length;
    const size = ofSize(value.length, schema.minItems, schema.maxItems, 'items');
    if (size !== null) return { path, text: size };
    const first: readonly unknown[] = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
    for (const [index, item] of value.entries()) {
      const fault = this.find(index < first.length ? first[index] : schema.items, item, `${path}[${index}]`);
      if (fault !== null) return fault;
    }
    if (schema.uniqueItems === true && new Set(value.map(item => canonical(item))).size < value.length) {
      return { path, text: 'must have no item twice' };
    }
    const { contains } = schema;
    if (contains === undefined || value.some(item => this.find(contains, item, path) === null)) return null;
    return { path, text: 'lacks an item that the schema asks for' };
  }

  #ofCombination(schema: JsonObject, value: unknown, path: string): Fault {
    for (const rule of listOf(schema.allOf)) {
      const fault = this.find(rule, value, path);
      if (fault !== null) return fault;
    }
    const any = listOf(schema.anyOf).map(rule => this.find(rule, value, path));
    if (any.length > 0 && !any.includes(null)) return any.length === 1 ? (any[0] ?? null) : noneFits(path, 'anyOf');
    const fitting = listOf(schema.oneOf).filter(rule => this.find(rule, value, path) === null).length;
    if (listOf(schema.oneOf).length > 0 && fitting === 0) return noneFits(path, 'oneOf');
    if (fitting > 1) return { path, text: 'fits more than one schema of oneOf' };
    if (schema.not !== undefined && this.find(schema.not, value, path) === null) {
      return { path, text: 'must not fit the schema of not' };
    }
    if (schema.if === undefined) return null;
    const next = this.find(schema.if, value, path) === null ? schema.then : schema.else;
    return this.find(next, value, path);
  }
}

function noneFits(path: string, keyword: string): Fault {
  return { path, text: `fits no schema of ${keyword}` };
}

function ofChoice(schema: JsonObject, value: unknown, path: string): Fault {
  const choices = Array.isArray(schema.enum) ? schema.enum : Object.hasOwn(schema, 'const') ? [schema.const] : null;
  if (choices === null) return null;
  const sent = canonical(value);
  if (choices.some(choice => canonical(choice) === sent)) return null;
  const shown = choices.slice(0, 10).map(choice => canonical(choice).slice(0, 80));
  return { path, text: `must be ${shown.length === 1 ? '' : 'one of '}${shown.join(', ')}, got ${wordOf(value)}` };
}

function ofText({ minLength, maxLength }: JsonObject, value: string, path: string): Fault {
  if (minLength === undefined && maxLength === undefined) return null;
  const text = ofSize([...value].length, minLength, maxLength, 'characters');
  return text === null ? null : { path, text };
}

function ofNumber(schema: JsonObject, value: number, path: string): Fault {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
  if (typeof minimum === 'number' && value < minimum) return { path, text: `must be at least ${minimum}` };
  if (typeof maximum === 'number' && value > maximum) return { path, text: `must be at most ${maximum}` };
  if (typeof exclusiveMinimum === 'number' && value <= exclusiveMinimum) {
    return { path, text: `must be more than ${exclusiveMinimum}` };
  }
  if (typeof exclusiveMaximum === 'number' && value >= exclusiveMaximum) {
    return { path, text: `must be less than ${exclusiveMaximum}` };
  }
  if (typeof multipleOf !== 'number' || multipleOf <= 0) return null;
  const ratio = value / multipleOf;
  // Decimal fractions are not exact: 0.3 / 0.1 is slightly less than 3.
  return Math.abs(ratio - Math.round(ratio)) < 1e-9 ? null : { path, text: `must be a multiple of ${multipleOf}` };
}

function ofSize(size: number, min: unknown, max: unknown, what: string): string | null {
  if (typeof min === 'number' && size < min) return `must have at least ${min} ${what}, got ${size}`;
  return typeof max === 'number' && size > max ? `must have at most ${max} ${what}, got ${size}` : null;
}

function namesIn(names: unknown): readonly string[] {
  return listOf(names).filter(name => typeof name === 'string');
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Returns the same text for equal values. */
function canonical(value: unknown): string {
  const sorted = (_name: string, each: unknown) =>
    isJsonObject(each)
      ? Object.fromEntries(Object.entries(each).sort(([one], [other]) => (one < other ? -1 : 1)))
      : each;
  return JSON.stringify(value, sorted);
}

/** Names a value in a message. */
function wordOf(value: unknown): string {
  if (typeof value === 'string') return quote(value);
  if (Array.isArray(value)) return 'an array';
  return isJsonObject(value) ? 'an object' : String(value);
}
