import { expect, test } from 'vitest';
import { nearest } from './nearest.ts';

const NAMES = ['port', 'metaPort', 'jwt.secretFile', 'enable_func_token_auth'];

test.each([
  ['prot', 'port'],
  ['PORT', 'port'],
  ['meta_port', 'metaPort'],
  ['jwt.secretfile', 'jwt.secretFile'],
  ['enableFuncTokenAuth', 'enable_func_token_auth'],
  ['colour', null],
  ['', null],
])('%s has the nearest name %s', (given, expected) => {
  expect(nearest(given, NAMES)).toBe(expected);
});

test('nearest returns null when the text has a million characters', () => {
  expect(nearest('x'.repeat(1_000_000), NAMES)).toBeNull();
});
