import { expect, test } from 'vitest';
import { isTenant } from './tenant.ts';

test.each(['a', '0', 'A.b_c-9', 'x'.repeat(64)])('the text %j is a tenant name', text => {
  expect(isTenant(text)).toBe(true);
});

test.each(['', '-a', '.a', '_a', 'a b', 'a/b', 'ä', 'x'.repeat(65), 'a\n'])(
  'the text %j is not a tenant name',
  text => {
    expect(isTenant(text)).toBe(false);
  },
);
