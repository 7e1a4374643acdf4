import { functionNameOf } from '../core/call-recording.ts';
import { invalidRequest, type ServiceError } from '../core/error.ts';
import type { Range, Schema } from '../core/kind.ts';
import type { Parameter, Sent } from '../core/parameter.ts';
import { QUERIED_NAME_PATTERN } from '../core/urn.ts';

/**
 * A parameter with a text that `parse` reads. `absent` is its value when the parameter is absent or empty.
 */
export function parsed<T>(schema: Schema, absent: T, parse: (text: string, name: string) => T): Parameter<T> {
  return {
    schema,
    read: (query, name) => {
      const text = queryText(query, name);
      return text === undefined ? absent : parse(text, name);
    },
  };
}

/** A parameter with any text. Undefined when absent or empty. */
export function anyText(schema: Schema = {}): Parameter<string | undefined> {
  return parsed<string | undefined>({ type: 'string', ...schema }, undefined, text => text);
}

export function integer<T>(range: Range, absent: T, schema: Schema = {}): Parameter<number | T> {
  const shown = typeof absent === 'number' ? { default: absent } : {};
  return parsed<number | T>(
    { type: 'integer', minimum: range.min, maximum: range.max, ...shown, ...schema },
    absent,
    (text, name) => {
      const number = Number(text);
      if (/^\d+$/.test(text) && number >= range.min && number <= range.max) return number;
      throw badQuery(name, `an integer from ${range.min} to ${range.max}`, text);
    },
  );
}

export function flag(description?: string, absent = false): Parameter<boolean> {
  const schema = { type: 'boolean', default: absent, ...(description === undefined ? {} : { description }) };
  return parsed(schema, absent, (text, name) => {
    if (text === 'true' || text === 'false') return text === 'true';
    throw badQuery(name, 'true or false', text);
  });
}

/** A parameter that names a function, which reads as `0@<service>@<name>`. Undefined when absent or empty. */
export function functionName(): Parameter<string | undefined> {
  return parsed<string | undefined>(
    {
      type: 'string',
      pattern: QUERIED_NAME_PATTERN,
      description: 'A function: `<service>@<name>`, `0@<service>@<name>` or its URN.',
    },
    undefined,
    (text, name) => {
      const found = functionNameOf(text);
      if (found === undefined) throw badQuery(name, '<service>@<name>, or the URN of a function', text);
      return found;
    },
  );
}

/** Makes a parameter required. */
export function required<T>(parameter: Parameter<T>): Parameter<NonNullable<T>> {
  return {
    schema: parameter.schema,
    isRequired: true,
    read: (query, name) => {
      const value = parameter.read(query, name) ?? undefined;
      if (value === undefined) throw invalidRequest(`invalid query: ${name} is required`);
      return value;
    },
  };
}

/**
 * Returns the value of a parameter; undefined when it is absent or empty.
 * Fails with `invalid_request` when it is repeated.
 */
function queryText(query: Sent, name: string): string | undefined {
  const value = query[name];
  if (Array.isArray(value)) throw badQuery(name, 'given once', value.join(', '));
  return value === '' ? undefined : value;
}

/** Builds the error `invalid query: <name> must be <expected>, got "<value>"`. */
export function badQuery(name: string, expected: string, value: string): ServiceError {
  return invalidRequest(`invalid query: ${name} must be ${expected}, got "${value}"`);
}
