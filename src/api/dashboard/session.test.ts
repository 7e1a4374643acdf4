import { expect, test } from 'vitest';
import { CODE_SECONDS, LoginCodes } from './session.ts';

const UNAUTHENTICATED = expect.objectContaining({ code: 'unauthenticated' });

test('a login code works once, for its own token, within a minute', () => {
  let nowMs = 0;
  const codes = new LoginCodes(() => nowMs);
  const [first, second, late] = ['one', 'two', 'three'].map(token => codes.make('default', token)) as [
    string,
    string,
    string,
  ];
  expect([codes.use(second), codes.use(first)]).toEqual(['two', 'one']);
  expect(() => codes.use(first)).toThrow(UNAUTHENTICATED);
  nowMs = CODE_SECONDS * 1000;
  expect(() => codes.use(late)).toThrow(UNAUTHENTICATED);
});

test('a new login code replaces the oldest code of its own tenant when the tenant has too many', () => {
  const codes = new LoginCodes(() => 0);
  const other = codes.make('other', 'of the other');
  const made = Array.from({ length: 1000 }, (_, at) => codes.make('default', `token ${at}`));
  expect(codes.use(other)).toBe('of the other');
  expect(codes.use(made.at(-1) as string)).toBe('token 999');
  expect(() => codes.use(made[0] as string)).toThrow(UNAUTHENTICATED);
});
