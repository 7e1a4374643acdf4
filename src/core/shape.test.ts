import { describe, expect, test } from 'vitest';
import { failAtFirst } from './json.ts';
import { anything, boolean, described, integer, list, oneOf, record, refine, text } from './kind.ts';
import { Problems } from './problem.ts';
import { Form, kept, maybe, noteMissing, object, optional, readPresent, required } from './shape.ts';

const inner = object({
  size: optional(integer({ min: 1, max: 9 }), 3, 'How many.'),
  mode: optional(oneOf(['', 'fast']), ''),
});
const FIELDS = {
  name: required(text({ maxChars: 5, required: true }), 'Its name.'),
  flag: optional(boolean, false),
  inner: maybe(inner),
  tags: optional(record(text({ maxChars: 3 }), { check: name => (name === 'bad' ? 'is no tag' : undefined) }), {}),
  items: optional(list(inner, 2), []),
};
const SHAPE = object<{ [K in keyof typeof FIELDS]: (typeof FIELDS)[K]['absent'] }>(FIELDS);

function problemsOf(body: object): string[] {
  const problems = new Problems();
  readPresent(FIELDS, body as never, '', problems.add);
  return problems.found;
}

describe('row of a field table', () => {
  test('a row of a field table reads its field, and treats null as absent', () => {
    const body = { name: 'a', flag: null, inner: { size: 5 }, items: [{ mode: 'fast' }] };
    expect(SHAPE.read(body, '', failAtFirst)).toEqual({
      name: 'a',
      flag: false,
      inner: { size: 5, mode: '' },
      tags: {},
      items: [{ size: 3, mode: 'fast' }],
    });
  });

  test('a row of a field table describes the field with type, limits, default and meaning', () => {
    expect(SHAPE.describe()).toMatchObject({
      type: 'object',
      required: ['name'],
      properties: {
        name: { type: 'string', minLength: 1, maxLength: 5, description: 'Its name.' },
        flag: { type: 'boolean', default: false },
        inner: {
          properties: {
            size: { type: 'integer', minimum: 1, maximum: 9, default: 3, description: 'How many.' },
            mode: { enum: ['', 'fast'] },
          },
        },
        items: { type: 'array', maxItems: 2, items: { type: 'object' } },
      },
    });
  });

  test('a row of a field table describes an optional field as nullable when nulls are requested', () => {
    const { properties } = SHAPE.describe({ nulls: true }) as { properties: Record<string, unknown> };
    expect(properties.flag).toEqual({ anyOf: [{ type: 'boolean', default: false }, { type: 'null' }] });
    expect(properties.name).toMatchObject({ type: 'string' });
  });

  test('a row of a field table has no default in an update, and leaves out an absent field', () => {
    const update = object(kept(FIELDS));
    expect(update.describe()).not.toHaveProperty('required');
    expect(JSON.stringify((update.describe() as { properties: { flag: object } }).properties.flag)).not.toContain(
      'default',
    );
    expect(readPresent(update.fields, { flag: true }, '', failAtFirst).present).toEqual({ flag: true });
  });
});

describe('problems of a body', () => {
  test('problems of a body are collected in the order of the rows, each with its path', () => {
    expect(
      problemsOf({ flag: 1, inner: { size: 0, mode: 'slow' }, tags: { bad: 1, ok: 'toolong' }, items: [5] }),
    ).toEqual([
      'name is required',
      'flag must be a boolean',
      'inner.size must be between 1 and 9, got 0',
      'inner.mode must be one of "fast", got "slow"',
      'tags.bad is no tag',
      'tags.ok must have at most 3 characters, got 7',
      'items[0] must be an object',
    ]);
  });

  test('problems of a body list missing fields first when noteMissing runs first', () => {
    const problems = new Problems();
    const fields = { a: required(boolean), b: required(boolean, '', 'is required, and a flag') };
    noteMissing(fields, { a: 1 }, problems.add);
    readPresent(fields, { a: 1 }, '', problems.add);
    expect(problems.found).toEqual(['b is required, and a flag', 'a must be a boolean']);
  });

  test('problems of a rule over a list are reported only when its items have the right type', () => {
    const even = refine(list(integer({ min: 0, max: 9 })), (items, path, problem) => {
      items.forEach((item, index) => {
        if (item % 2 === 1) problem(`${path}[${index}]`, 'must be even');
      });
    });
    const found = (value: unknown) => {
      const problems = new Problems();
      return [even.read(value, 'x', problems.add), problems.found];
    };
    expect(found([2, 3, 5])).toEqual([undefined, ['x[1] must be even', 'x[2] must be even']]);
    expect(found([3, 'a'])).toEqual([undefined, ['x[1] must be an integer']]);
    expect(found([2])).toEqual([[2], []]);
  });

  test('a wrong type in a list is reported before a wrong value in its items when reading stops at the first problem', () => {
    const fails = (body: object) => () => SHAPE.read(body, '', failAtFirst);
    expect(fails({ name: 'a', items: [{ size: 0 }, 5] })).toThrow('invalid request body: items[1] must be an object');
    expect(fails({ name: 'a', items: [{}, {}, { size: 0 }] })).toThrow('items[2].size must be between');
    expect(fails({ name: 'a', items: [{}, {}, {}] })).toThrow('items must have at most 2 items');
    expect(fails({ name: 'a', tags: { bad: 'x', ok: 1 } })).toThrow('tags.ok must be a string');
  });
});

describe('Form', () => {
  const form = (body: unknown) => new Form(SHAPE, body, 'outer', failAtFirst);

  test('Form reads fields in the order that its caller chooses', () => {
    const body = form({ name: 'toolong', flag: 'x' });
    expect(() => body.read('flag')).toThrow('outer.flag must be a boolean');
    expect(() => body.read('tags', 'name')).toThrow('outer.name must have at most 5 characters, got 7');
    expect(body.read('tags')).toEqual({ tags: {} });
  });

  test('Form opens an absent object as an empty one, and fails when the value is not an object', () => {
    expect(form({}).open('inner').read('size')).toEqual({ size: 3 });
    expect(form({}).open('inner').at('size')).toBe('outer.inner.size');
    expect(() => form({ inner: [] }).open('inner')).toThrow('outer.inner must be an object');
    expect(() => new Form(SHAPE, [], '', failAtFirst)).toThrow('the body must be an object');
  });
});

test('an arbitrary value has at most 100 levels', () => {
  let deep: unknown = 1;
  for (let level = 0; level < 101; level++) deep = [deep];
  const problems = new Problems();
  expect(described(anything, { description: 'x' }).read(deep, 'x', problems.add)).toBeUndefined();
  expect(problems.found).toEqual(['x must have at most 100 levels of arrays and objects']);
});
