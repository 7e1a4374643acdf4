import { expect, test } from 'vitest';
import { ABSENT, bodyOf, fieldsOf, textsOf } from './schema-fields.ts';

const SCHEMA = {
  type: 'object',
  properties: {
    sku: { type: 'string', description: 'The article.' },
    count: { type: 'integer', default: 1 },
    factor: { type: ['number', 'null'] },
    isGift: { type: 'boolean' },
    size: { $ref: '#/$defs/Size' },
    note: { anyOf: [{ type: 'string' }, { type: 'null' }], default: null },
  },
  required: ['sku', 'size'],
  $defs: { Size: { enum: ['s', 'l'] } },
};
const fields = fieldsOf(SCHEMA) ?? [];

test('simple members of a schema become fields with their first texts', () => {
  expect(fields.map(({ name, kind, isRequired, hint, first }) => [name, kind, isRequired, hint, first])).toEqual([
    ['sku', 'string', true, 'string: The article.', ''],
    ['count', 'integer', false, 'integer, optional', '1'],
    ['factor', 'number', false, 'number, optional', ''],
    ['isGift', 'choice', false, 'boolean, optional', ABSENT],
    ['size', 'choice', true, 'one of these', 's'],
    ['note', 'string', false, 'string, optional', ''],
  ]);
});

test('a schema with another member has no form', () => {
  const without = [
    undefined,
    {},
    { type: 'string' },
    { type: 'object', properties: {} },
    { $ref: '#/$defs/Node', $defs: {} },
    ...[
      true,
      {},
      { type: 'array' },
      { type: 'object' },
      { type: 'null' },
      { type: ['string', 'integer'] },
      { enum: [] },
      { enum: [{ a: 1 }] },
      { $ref: '#/$defs/absent' },
      { anyOf: [{ type: 'string' }, { type: 'integer' }] },
    ].map(member => ({ properties: { a: { type: 'string' }, b: member } })),
  ];
  for (const schema of without) expect(fieldsOf(schema), JSON.stringify(schema)).toBeNull();
});

test('texts become the members of the body, and back', () => {
  const texts = { sku: 'a', count: '2', factor: '0.5', isGift: 'true', size: 'l', note: '' };
  const body = bodyOf(fields, texts, '{"more": [1], "note": "old"}');
  expect(JSON.parse(body)).toEqual({ more: [1], sku: 'a', count: 2, factor: 0.5, isGift: true, size: 'l' });
  expect(textsOf(fields, body)).toEqual(texts);
  expect(JSON.parse(bodyOf(fields, { ...texts, isGift: ABSENT, count: 'two' }, 'nothing'))).toEqual({
    ...{ sku: 'a', count: 'two', factor: 0.5, size: 'l' },
  });
  expect(textsOf(fields, '[]')).toEqual({ sku: '', count: '1', factor: '', isGift: ABSENT, size: 's', note: '' });
});
