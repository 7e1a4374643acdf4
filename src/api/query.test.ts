import { expect, test } from 'vitest';
import { describeParameters, readParameters, type Sent } from '../core/parameter.ts';
import { anyText, flag, integer, required } from './query.ts';

const QUERY = {
  name: required(anyText({ description: 'Whose.' })),
  limit: integer({ min: 1, max: 9 }, 5),
  all: flag('Every one.'),
};
const read = (query: Sent) => readParameters(QUERY, query);

test('readParameters reads a table that also documents it, and an empty parameter counts as absent', () => {
  expect(read({ name: 'a', limit: '', all: 'true' })).toEqual({ name: 'a', limit: 5, all: true });
  expect(describeParameters(QUERY)).toEqual({
    type: 'object',
    required: ['name'],
    properties: {
      name: { type: 'string', description: 'Whose.' },
      limit: { type: 'integer', minimum: 1, maximum: 9, default: 5 },
      all: { type: 'boolean', default: false, description: 'Every one.' },
    },
  });
});

test.each<[Sent, string]>([
  [{}, 'name is required'],
  [{ name: ['a', 'b'] }, 'name must be given once, got "a, b"'],
  [{ name: 'a', limit: '10', all: 'yes' }, 'limit must be an integer from 1 to 9, got "10"'],
  [{ name: 'a', all: 'yes' }, 'all must be true or false, got "yes"'],
])('readParameters reports the first invalid parameter: %j', (query, problem) => {
  expect(() => read(query)).toThrow(`invalid query: ${problem}`);
});
