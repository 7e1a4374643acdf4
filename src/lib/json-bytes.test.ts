import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LIMITS } from '../core/limits.ts';
import { exceededBound, isJson, staysInside } from './json-bytes.ts';

function parses(bytes: Buffer): boolean {
  try {
    JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes));
    return true;
  } catch {
    return false;
  }
}

const PIECES = [
  '{',
  '}',
  '[',
  ']',
  ',',
  ':',
  '"',
  '"a"',
  '\\',
  '\\u00e9',
  '\\x',
  '0',
  '-',
  '1.5e+3',
  '.',
  'e',
  'true',
  'nul',
  'null',
  ' ',
  '\n',
  '\0',
  'é',
  '\u2028',
];

test('isJson agrees with JSON.parse on every value', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.constantFrom(undefined, 2, '\t'), (value, space) => {
      expect(isJson(Buffer.from(JSON.stringify(value, null, space)))).toBe(true);
    }),
  );
});

test('isJson agrees with JSON.parse on texts that are almost JSON', () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...PIECES), { maxLength: 12 }), pieces => {
      const bytes = Buffer.from(pieces.join(''));
      expect(isJson(bytes)).toBe(parses(bytes));
    }),
    { numRuns: 3000 },
  );
});

test('isJson agrees with JSON.parse when one byte of a value was changed', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.nat(), fc.nat(255), (value, place, byte) => {
      const bytes = Buffer.from(JSON.stringify(value));
      bytes[place % bytes.length] = byte;
      expect(isJson(bytes)).toBe(parses(bytes));
    }),
    { numRuns: 3000 },
  );
});

test.each(['', ' ', '1,"code":200', '1}', '{"a":1}{', '"a', '"\\u12', '01', '1.', '-', '[1,]', '{"a"}', '\ufeff1'])(
  'isJson rejects %j',
  text => {
    expect(isJson(Buffer.from(text))).toBe(false);
  },
);

const nested = (levels: number) => [
  '['.repeat(levels) + ']'.repeat(levels),
  `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`,
  `[1,${'['.repeat(levels - 1)}"]"${']'.repeat(levels - 1)}]`,
];

test('isJson accepts nesting at the limit, and exceededBound names the limit one level deeper', () => {
  for (const text of nested(LIMITS.jsonLevels)) {
    expect(isJson(Buffer.from(text))).toBe(true);
    expect(staysInside(Buffer.from(text))).toBe(true);
    expect(exceededBound(Buffer.from(text))).toBeUndefined();
  }
  for (const text of [...nested(LIMITS.jsonLevels + 1), '['.repeat(300_000)]) {
    expect(isJson(Buffer.from(text))).toBe(false);
    expect(staysInside(Buffer.from(text))).toBe(false);
    expect(exceededBound(Buffer.from(text))).toBe('is nested deeper than 500 levels');
  }
});

test('isJson accepts a number at the digit limit, and exceededBound names the limit one digit above', () => {
  const within = '7'.repeat(LIMITS.jsonNumberDigits);
  const beyond = `${within}7`;
  const around = (number: string) => [number, ` -${number} `, `[1,${number}]`, `{"a":${number},"b":1}`];
  for (const text of [...around(within), `"${beyond}"`, ` ${' '.repeat(5000)}1`]) {
    expect(isJson(Buffer.from(text))).toBe(true);
    expect(staysInside(Buffer.from(text))).toBe(true);
  }
  for (const text of [...around(beyond), `0.${within}`, `[1.5e${within}]`]) {
    expect(isJson(Buffer.from(text))).toBe(false);
    expect(staysInside(Buffer.from(text))).toBe(false);
    expect(exceededBound(Buffer.from(text))).toBe('has a number of more than 4300 digits');
  }
});

const LONG_TEXT = `"${'x'.repeat(40)}`;

test('staysInside accepts a field exactly when the surrounding fields stay unchanged', () => {
  const inside = fc.array(fc.constantFrom(...PIECES, LONG_TEXT, '\\"', '\\\\', '"code":500'), { maxLength: 14 });
  fc.assert(
    fc.property(inside, pieces => {
      const value = pieces.join('');
      const whole = `{"code":200,"data":${value},"message":""}`;
      let read: unknown;
      try {
        read = JSON.parse(whole);
      } catch {
        return;
      }
      const isAsSent = parses(Buffer.from(value)) && Object.keys(read as object).join() === 'code,data,message';
      expect(staysInside(Buffer.from(value))).toBe(isAsSent);
    }),
    { numRuns: 20_000 },
  );
});

test('staysInside accepts every JSON value', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.nat(60), (value, length) => {
      const text = JSON.stringify({ ['\\"'.repeat(length)]: value, '"': '\\'.repeat(length) });
      expect(staysInside(Buffer.from(text))).toBe(true);
    }),
  );
});

test.each([
  ['another member', `1,"code":500`],
  ['another member after a long text', `${LONG_TEXT}","code":500`],
  ['an end of the surrounding object', '1}'],
  ['a text that does not end', LONG_TEXT],
  ['a text whose last quote is escaped', `${LONG_TEXT}\\\\\\"`],
  ['a container that does not end', '[1'],
  ['more ends than beginnings', '[1]]['],
])('staysInside rejects a field with %s', (_, text) => {
  expect(staysInside(Buffer.from(text))).toBe(false);
});
