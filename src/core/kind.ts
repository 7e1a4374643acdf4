import { isJsonObject, type JsonObject } from './json.ts';
import { isTooDeep, MAX_LEVELS, MAX_QUOTED_CHARS, type Problem, quote } from './problem.ts';

/** A JSON Schema. */
export type Schema = Readonly<Record<string, unknown>>;

/** `nulls`: the description allows null for every optional field. */
export interface DescribeOptions {
  readonly nulls?: boolean;
}

/** The kind of a field's value: one declaration that reads values and describes them for OpenAPI. Pure. */
export interface Kind<T> {
  /**
   * Reads a value that is neither absent nor null. Returns undefined for a wrong value, after calling
   * `problem`.
   */
  read(value: unknown, path: string, problem: Problem): T | undefined;
  describe(options?: DescribeOptions): Schema;
  /** Parts that the search for unknown fields visits: the fields of an object, the items of a list. */
  readonly fields?: Readonly<Record<string, { readonly kind: Kind<unknown> }>>;
  readonly items?: { readonly kind: Kind<unknown>; readonly max: number };
  /** True if other fields are allowed; the service does not warn about them. */
  readonly isFree?: boolean;
  /**
   * True if the presence of the object selects the mode of the request. When it is absent, an unknown field
   * elsewhere gets no suggestion from this object.
   */
  readonly isMode?: boolean;
}

/** Makes a kind from a schema and a reader. */
export function kindOf<T>(schema: Schema, read: Kind<T>['read']): Kind<T> {
  return { read, describe: () => schema };
}

/**
 * Adds a rule to `kind`. The rule gets the value that was read and calls `problem` when the value breaks it.
 */
export function refine<T>(
  kind: Kind<T>,
  rule: (value: T, path: string, problem: Problem) => void,
  schema?: Schema,
): Kind<T> {
  return {
    ...described(kind, schema),
    read(value, path, problem) {
      const read = kind.read(value, path, problem);
      if (read === undefined) return undefined;
      let isBroken = false;
      const note: Problem = (at, text) => {
        isBroken = true;
        problem(at, text);
      };
      rule(read, path, note);
      return isBroken ? undefined : read;
    },
  };
}

/** Adds members to the description of `kind`. */
export function described<T>(kind: Kind<T>, schema: Schema | undefined): Kind<T> {
  if (schema === undefined) return kind;
  return { ...kind, describe: options => ({ ...kind.describe(options), ...schema }) };
}

/** Notes a problem. Returns undefined, so that a reader can return the result. */
export function wrongAt(path: string, text: string, problem: Problem): undefined {
  problem(path, text);
  return undefined;
}

export interface TextRules {
  readonly maxChars?: number;
  /** In UTF-8. */
  readonly maxBytes?: number;
  /** True if the text must not be empty. */
  readonly required?: boolean;
  readonly pattern?: RegExp;
  /** Meaning of `pattern`, after "must be". An empty text passes unless it is required. */
  readonly shape?: string;
  /**
   * True if NUL characters are allowed: input of programs, and texts that a later rule refuses with its own
   * message.
   */
  readonly raw?: boolean;
}

const NO_NUL = '^[^\\u0000]*$';

const HALF_OF_PAIR = /\p{Cs}/u;

export function text(rules: TextRules = {}): Kind<string> {
  const { maxChars, maxBytes, required = false, pattern, shape = '', raw = false } = rules;
  const schema = {
    type: 'string',
    ...(required && pattern === undefined ? { minLength: 1 } : {}),
    ...(maxChars === undefined ? {} : { maxLength: maxChars }),
    ...(pattern ? { pattern: required ? pattern.source : `${pattern.source}|^$` } : raw ? {} : { pattern: NO_NUL }),
  };
  return kindOf(schema, (value, path, problem) => {
    if (typeof value !== 'string') return wrongAt(path, 'must be a string', problem);
    if (value === '' && required) return wrongAt(path, 'is required', problem);
    // JSON Schema counts characters; one character may take two code units.
    if (maxChars !== undefined && value.length > maxChars) {
      const chars = [...value].length;
      if (chars > maxChars) return wrongAt(path, `must have at most ${maxChars} characters, got ${chars}`, problem);
    }
    // Paths, arguments and environment variables cannot contain a NUL, and no other text needs one.
    if (!raw && value.includes('\0')) {
      return wrongAt(path, `must not ${problem.isStepwise ? 'contain' : 'have'} a NUL character`, problem);
    }
    // UTF-8 cannot encode half of a surrogate pair, so a program would not see the text that was sent.
    if (HALF_OF_PAIR.test(value)) return wrongAt(path, 'must be text that UTF-8 can hold', problem);
    if (maxBytes !== undefined && Buffer.byteLength(value) > maxBytes) {
      return wrongAt(path, `must have at most ${maxBytes} bytes`, problem);
    }
    if (value !== '' && pattern && !pattern.test(value)) {
      return wrongAt(path, `must be ${shape}, got ${quote(value)}`, problem);
    }
    return value;
  });
}

/** Accepts one of `values`. An empty text passes when `values` contains it. */
export function oneOf<const T extends string>(values: readonly T[]): Kind<T> {
  return kindOf({ enum: values }, (value, path, problem) => {
    if (typeof value !== 'string') return wrongAt(path, 'must be a string', problem);
    const found = values.find(known => known === value);
    if (found !== undefined) return found;
    const named = values.filter(known => known !== '').map(known => `"${known}"`);
    return wrongAt(path, `must be one of ${named.join(', ')}, got ${quote(value)}`, problem);
  });
}

export interface Range {
  readonly min: number;
  readonly max: number;
}

const inRange = (value: number, { min, max }: Range, path: string, problem: Problem) => {
  if (value < min || value > max) return wrongAt(path, `must be between ${min} and ${max}, got ${value}`, problem);
  return value === 0 ? 0 : value;
};

export function integer(range: Range): Kind<number> {
  return kindOf({ type: 'integer', minimum: range.min, maximum: range.max }, (value, path, problem) =>
    Number.isInteger(value)
      ? inRange(value as number, range, path, problem)
      : wrongAt(path, 'must be an integer', problem),
  );
}

export function number(range: Range): Kind<number> {
  return kindOf({ type: 'number', minimum: range.min, maximum: range.max }, (value, path, problem) =>
    typeof value === 'number' ? inRange(value, range, path, problem) : wrongAt(path, 'must be a number', problem),
  );
}

/** Accepts an integer that is not negative, or a text of decimal digits. */
export function integerOrDigits(range: Range): Kind<number> {
  // All numbers with fewer digits than the maximum, and the maximum itself.
  const fewer = String(range.max).length - 1;
  const digits = range.min === 0 ? `[0-9]{1,${fewer}}` : `[1-9][0-9]{0,${fewer - 1}}`;
  const schema = {
    anyOf: [
      { type: 'integer', minimum: range.min, maximum: range.max },
      { type: 'string', pattern: `^0*(${digits}|${range.max})$`, description: 'Decimal digits.' },
    ],
  };
  return kindOf(schema, (value, path, problem) => {
    const number = typeof value === 'string' && /^-?\d{1,15}$/.test(value) ? Number(value) : value;
    if (Number.isInteger(number)) return inRange(number as number, range, path, problem);
    return wrongAt(path, `must be an integer or a string of decimal digits, got ${quote(value)}`, problem);
  });
}

export const boolean: Kind<boolean> = kindOf({ type: 'boolean' }, (value, path, problem) =>
  typeof value === 'boolean' ? value : wrongAt(path, 'must be a boolean', problem),
);

const LEVELS = `Values of any shape, at most ${MAX_LEVELS} levels deep.`;

export const anything: Kind<unknown> = kindOf({}, (value, path, problem) =>
  isTooDeep(value) ? wrongAt(path, `must have at most ${MAX_LEVELS} levels of arrays and objects`, problem) : value,
);

export const anyObject: Kind<JsonObject> = kindOf(
  { type: 'object', additionalProperties: {}, description: LEVELS },
  (value, path, problem) => {
    if (!isJsonObject(value)) return wrongAt(path, 'must be an object', problem);
    return anything.read(value, path, problem) as JsonObject | undefined;
  },
);

/** A list of values of any shape. */
export const anyList = (maxItems: number) => described(list(anything, maxItems), { description: LEVELS });

interface MapNames {
  /** Returns the problem of a name, or undefined. */
  readonly check?: (name: string) => string | undefined;
  /** The form of a right name, for the description. */
  readonly pattern?: RegExp;
}

/**
 * A map whose names the caller chooses. `ofNull` replaces a null value; without it, null is a wrong value.
 */
export function record<T>(item: Kind<T>, { check, pattern }: MapNames = {}, ofNull?: T): Kind<Record<string, T>> {
  const describe: Kind<unknown>['describe'] = options => ({
    type: 'object',
    additionalProperties: item.describe(options),
    ...(pattern === undefined ? {} : { propertyNames: { pattern: pattern.source } }),
  });
  return {
    describe,
    read(value, path, problem) {
      if (!isJsonObject(value)) return wrongAt(path, 'must be an object', problem);
      const entries: [string, T][] = [];
      let isWrong = false;
      const at = (name: string) => `${path}.${problem.isStepwise ? name : name.slice(0, MAX_QUOTED_CHARS)}`;
      const readName = (name: string) => {
        const wrong = check?.(name);
        if (wrong === undefined) return;
        isWrong = true;
        problem(at(name), wrong);
      };
      for (const [name, each] of Object.entries(value)) {
        if (!problem.isStepwise) readName(name);
        const read = each === null && ofNull !== undefined ? ofNull : item.read(each, at(name), problem);
        if (read === undefined) isWrong = true;
        else entries.push([name, read]);
      }
      if (problem.isStepwise) for (const [name] of entries) readName(name);
      return isWrong ? undefined : Object.fromEntries(entries);
    },
  };
}

export function list<T>(item: Kind<T>, maxItems = Number.POSITIVE_INFINITY, more: Schema = {}): Kind<T[]> {
  const bound = Number.isFinite(maxItems) ? { maxItems } : {};
  return {
    items: { kind: item, max: maxItems },
    describe: options => ({ type: 'array', items: item.describe(options), ...bound, ...more }),
    read(value, path, problem) {
      if (!Array.isArray(value)) return wrongAt(path, 'must be an array', problem);
      const tooMany = value.length > maxItems ? `must have at most ${maxItems} items` : undefined;
      if (tooMany !== undefined && !problem.isStepwise) return wrongAt(path, tooMany, problem);
      if (problem.isStepwise && item.fields !== undefined) {
        const wrong = value.findIndex(each => !isJsonObject(each));
        if (wrong !== -1) return wrongAt(`${path}[${wrong}]`, 'must be an object', problem);
      }
      const items = value.map((each, index) => item.read(each, `${path}[${index}]`, problem));
      if (items.includes(undefined)) return undefined;
      return tooMany === undefined ? (items as T[]) : wrongAt(path, tooMany, problem);
    },
  };
}
