import { expect, test } from 'vitest';
import { CODE_SECONDS, LoginCodes } from './login-codes.ts';

const UNAUTHENTICATED = expect.objectContaining({ code: 'unauthenticated' });

test('a code is good once, for its own token, and for a minute', () => {
  let nowMs = 0;
  const codes = new LoginCodes(() => nowMs);
  const [first, second, late] = ['one', 'two', 'three'].map(token => codes.make(token)) as [string, string, string];
  expect([codes.use(second), codes.use(first)]).toEqual(['two', 'one']);
  expect(() => codes.use(first)).toThrow(UNAUTHENTICATED);
  nowMs = CODE_SECONDS * 1000;
  expect(() => codes.use(late)).toThrow(UNAUTHENTICATED);
});

test('open codes have a bound, and those that are over make room', () => {
  let nowMs = 0;
  const codes = new LoginCodes(() => nowMs);
  const make = () => {
    for (let count = 0; count < 1000; count++) codes.make('token');
  };
  expect(make).toThrow(expect.objectContaining({ code: 'resource_exhausted' }));
  nowMs = CODE_SECONDS * 1000;
  expect(codes.make('token')).not.toBe('');
});
