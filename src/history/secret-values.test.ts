import { describe, expect, test } from 'vitest';
import { SecretValues } from './secret-values.ts';

const WHOLE = false;
const CUT = true;

describe('values of secrets in texts', () => {
  test.each([
    ['a plain value', 'hunter2', 'it is hunter2, hunter2', 'it is [redacted], [redacted]'],
    ['a value in JSON', 'a"b\\c\nd', JSON.stringify({ x: 'a"b\\c\nd' }), '{"x":"[redacted]"}'],
    ['a value in ASCII JSON', 'grün€', '"gr\\u00fcn\\u20ac"', '"[redacted]"'],
    ['a value in JSON without HTML', 'a<b>&c', '"a\\u003cb\\u003e\\u0026c"', '"[redacted]"'],
    ['a value of three characters', 'abc', 'abcdef', 'abcdef'],
    ['no value', 'hunter2', 'hunter', 'hunter'],
  ])('%s', (_, value, text, shown) => {
    expect(new SecretValues([value]).hide(text, WHOLE)).toBe(shown);
  });

  test('a value that contains another one is replaced as a whole', () => {
    expect(new SecretValues(['hunter', 'hunter2']).hide('hunter2 hunter', WHOLE)).toBe('[redacted] [redacted]');
  });

  test.each([
    ['the beginning of a value', 'it is hunt', 'it is [redacted]'],
    ['three characters of a value', 'it is hun', 'it is hun'],
    ['a whole value before it', 'hunter2', '[redacted]'],
  ])('the end of a cut text with %s', (_, text, shown) => {
    expect(new SecretValues(['hunter2']).hide(text, CUT)).toBe(shown);
  });
});
