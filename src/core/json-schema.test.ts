import { describe, expect, test } from 'vitest';
import type { JsonObject } from './json.ts';
import { checkSchema, faultOf } from './json-schema.ts';
import { Problems } from './problem.ts';

const ORDER = {
  type: 'object',
  required: ['items'],
  additionalProperties: false,
  properties: {
    items: { type: 'array', minItems: 1, items: { $ref: '#/$defs/item' } },
    note: { type: ['string', 'null'], maxLength: 3 },
    size: { enum: ['S', 'M', 1] },
  },
  $defs: { item: { type: 'object', required: ['price'], properties: { price: { type: 'number', minimum: 0 } } } },
};

// The word "then" in an object of the source would look like a promise.
const CONDITION = JSON.parse('{"if":{"type":"string"},"then":{"minLength":2},"else":{"minimum":2}}') as JsonObject;

describe('the check of a value', () => {
  test.each<[schema: JsonObject, value: unknown, fault: string | null]>([
    [ORDER, { items: [{ price: 1.5 }], note: null, size: 'M' }, null],
    [ORDER, [], 'event: must be an object, got an array'],
    [ORDER, {}, 'event.items: is required'],
    [ORDER, { items: [] }, 'event.items: must have at least 1 items, got 0'],
    [ORDER, { items: [{ price: 1 }, { price: '2' }] }, 'event.items[1].price: must be a number, got "2"'],
    [ORDER, { items: [{ price: -1 }] }, 'event.items[0].price: must be at least 0'],
    [ORDER, { items: [{ price: 1 }], other: 1 }, 'event.other: is not allowed'],
    [ORDER, { items: [{ price: 1 }], note: '🙂🙂🙂' }, null],
    [ORDER, { items: [{ price: 1 }], note: 'four' }, 'event.note: must have at most 3 characters, got 4'],
    [ORDER, { items: [{ price: 1 }], size: 'L' }, 'event.size: must be one of "S", "M", 1, got "L"'],
    [{ type: 'integer' }, 1.0, null],
    [{ type: 'integer' }, 1.5, 'event: must be an integer, got 1.5'],
    [{ type: 'integer', multipleOf: 5 }, 12, 'event: must be a multiple of 5'],
    [{ multipleOf: 0.1 }, 0.3, null],
    [{ exclusiveMinimum: 1, exclusiveMaximum: 3 }, 3, 'event: must be less than 3'],
    [{ const: { a: [1], b: 2 } }, { b: 2, a: [1] }, null],
    [{ const: 'x' }, 'y', 'event: must be "x", got "y"'],
    [{ anyOf: [{ type: 'string' }, { type: 'number' }] }, true, 'event: fits no schema of anyOf'],
    [{ oneOf: [{ minimum: 1 }, { minimum: 2 }] }, 2, 'event: fits more than one schema of oneOf'],
    [{ allOf: [{ minimum: 1 }, { maximum: 2 }] }, 3, 'event: must be at most 2'],
    [{ not: { type: 'string' } }, 'a', 'event: must not fit the schema of not'],
    [CONDITION, 'a', /at least 2 characters/],
    [CONDITION, 1, 'event: must be at least 2'],
    [{ prefixItems: [{ type: 'string' }], items: { type: 'number' } }, ['a', 'b'], /^event\[1\]: must be a number/],
    [
      { uniqueItems: true },
      [
        { a: 1, b: 2 },
        { b: 2, a: 1 },
      ],
      'event: must have no item twice',
    ],
    [{ contains: { type: 'string' } }, [1], /lacks an item/],
    [{ propertyNames: { maxLength: 1 } }, { ab: 1 }, /^event\.ab: must have at most 1/],
    [{ dependentSchemas: { a: { required: ['b'] } } }, { a: 1 }, 'event.b: is required'],
    [{ properties: { a: false } }, { a: 1 }, 'event.a: is not allowed'],
    [{ pattern: '^a$', format: 'email' }, 'b', null],
    [{ patternProperties: { '^x': {} }, additionalProperties: false }, { xy: 1 }, null],
    [{ properties: { toString: { type: 'string' } }, required: ['toString'] }, {}, 'event.toString: is required'],
  ] as never)('%j, %j: %s', (schema, value, fault) => {
    const found = faultOf(schema, value, 'event');
    if ((fault as unknown) instanceof RegExp) expect(found).toMatch(fault as unknown as RegExp);
    else expect(found).toBe(fault);
  });

  test('a reference may be recursive', () => {
    const tree = { type: 'object', properties: { next: { $ref: '#' } }, required: ['name'] };
    expect(faultOf(tree, { name: 1, next: { name: 2 } }, 'event')).toBeNull();
    expect(faultOf(tree, { name: 1, next: { name: 2, next: {} } }, 'event')).toBe('event.next.next.name: is required');
    expect(faultOf({ $ref: '#' }, 1, 'event')).toBeNull();
    expect(faultOf({ $ref: '#/$defs/a~1b', $defs: { 'a/b': { type: 'null' } } }, 1, 'event')).toMatch(/must be null/);
  });

  test('a schema whose check takes too long refuses the value', () => {
    const levels = Array.from({ length: 40 }, (_, n) => [
      `l${n}`,
      { allOf: [{ $ref: `#/$defs/l${n + 1}` }, { $ref: `#/$defs/l${n + 1}` }] },
    ]);
    const $defs = { ...Object.fromEntries(levels), l40: { type: 'number' } };
    expect(faultOf({ $ref: '#/$defs/l0', $defs }, 1, 'event')).toMatch(/more than 100000 steps/);
  });
});

describe('the check of a schema', () => {
  const problemsOf = (schema: unknown) => {
    const problems = new Problems();
    checkSchema(schema as JsonObject, 'inputSchema', problems.add);
    return problems.found;
  };

  test('a right schema has no problem', () => {
    expect(problemsOf(ORDER)).toEqual([]);
    expect(problemsOf({ title: 'x', examples: [1], items: true })).toEqual([]);
  });

  test('each fault is named by its path', () => {
    expect(
      problemsOf({
        type: 'text',
        properties: { a: 1, b: { required: 'a' }, c: { $ref: '#/$defs/none' }, d: { $ref: 'https://x.test/' } },
        anyOf: {},
        minLength: '1',
      }),
    ).toEqual([
      'inputSchema.type must be one or a list of object, array, string, number, integer, boolean, null',
      'inputSchema.minLength must be a number',
      'inputSchema.anyOf must be an array of schemas',
      'inputSchema.properties.a must be a JSON Schema: an object, true or false',
      'inputSchema.properties.b.required must be an array',
      'inputSchema.properties.c.$ref must name a part of the same schema, such as #/$defs/item',
      'inputSchema.properties.d.$ref must name a part of the same schema, such as #/$defs/item',
    ]);
  });
});
