import { expect, test } from 'vitest';
import { parseJson } from './json.ts';

test.each([
  ['hunter2', "Unexpected token 'h' in JSON"],
  ['{"value": hunter2-and-much-behind-it}', "Unexpected token 'h' in JSON"],
  ["'hunter2'", "Unexpected token ''' in JSON"],
  [', hunter2', "Unexpected token ',' in JSON"],
  ['hunter2 is not valid JSON\n, too', "Unexpected token 'h' in JSON"],
  ['{"value": "hunter2" "x"}', /position 20/],
  ['', 'Unexpected end of JSON input'],
])('the error about invalid JSON quotes at most one character of it: %j', (text, word) => {
  const parsed = parseJson(Buffer.from(text));
  expect(parsed).toEqual({ ok: false, word: expect.stringMatching(word) });
  expect(JSON.stringify(parsed)).not.toContain('unter2');
});
