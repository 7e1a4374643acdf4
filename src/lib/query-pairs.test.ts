import { expect, test } from 'vitest';
import { decodedLoosely, nameOf, queryOf, valuesOf } from './query-pairs.ts';

test('a query is all behind the first question mark', () => {
  expect(['/a', '/a?', '/a?b=?c'].map(queryOf)).toEqual([undefined, '', 'b=?c']);
});

test('a parameter is found however its name is written, each time that it is there', () => {
  expect(valuesOf('token=a&%74oken=%62&tok%65N=x&a=token=y&token&=z', 'token')).toEqual(['a', 'b', '']);
  expect(nameOf('%74oken=a=b')).toBe('token');
});

test('what cannot be decoded hides nothing of the rest', () => {
  expect(decodedLoosely('%zz%61+%')).toBe('%zza %');
});
