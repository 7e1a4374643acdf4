import { expect, test } from 'vitest';
import { describeParameters, Header, type Parameter, readParameters } from './parameter.ts';

const upper: Parameter<string> = {
  schema: { type: 'string', description: 'Loud.' },
  isRequired: true,
  read: (sent, name) => String(sent[name] ?? '').toUpperCase(),
};
const COUNT = new Header('X-Count', { type: 'integer', description: 'How many.' }, 0, (text, name) => {
  if (/^\d+$/.test(text)) return Number(text);
  throw new Error(`${name} must be a number, got "${text}"`);
});

test('readParameters reads a table, and describeParameters names each header as on the wire', () => {
  const table = { text: upper, count: COUNT };
  expect(readParameters(table, { text: 'a', 'x-count': '3' })).toEqual({ text: 'A', count: 3 });
  expect(describeParameters(table)).toEqual({
    type: 'object',
    required: ['text'],
    properties: {
      text: { type: 'string', description: 'Loud.' },
      'X-Count': { type: 'integer', description: 'How many.' },
    },
  });
});

test('an absent header has its default, and an empty header is read', () => {
  expect(COUNT.read({})).toBe(0);
  expect(COUNT.isSent({})).toBe(false);
  expect(COUNT.isSent({ 'x-count': '' })).toBe(true);
  expect(() => COUNT.read({ 'x-count': '' })).toThrow('X-Count must be a number, got ""');
});

test('a repeated header is read as one text with commas', () => {
  expect(() => COUNT.read({ 'x-count': ['1', '2'] })).toThrow('X-Count must be a number, got "1,2"');
});
