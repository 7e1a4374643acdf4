import { expect, test } from 'vitest';
import { decodedLoosely, nameOf, queryOf, valuesOf } from './query-pairs.ts';

test('queryOf returns everything after the first question mark', () => {
  expect(['/a', '/a?', '/a?b=?c'].map(queryOf)).toEqual([undefined, '', 'b=?c']);
});

test('valuesOf returns every value of a parameter, also when its name is percent-encoded', () => {
  expect(valuesOf('token=a&%74oken=%62&tok%65N=x&a=token=y&token&=z', 'token')).toEqual(['a', 'b', '']);
  expect(nameOf('%74oken=a=b')).toBe('token');
});

test('decodedLoosely keeps undecodable parts and decodes the rest', () => {
  expect(decodedLoosely('%zz%61+%')).toBe('%zza %');
});
