import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isJson, staysInside } from './json-bytes.ts';

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

test('says the same as the parser of every value', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.constantFrom(undefined, 2, '\t'), (value, space) => {
      expect(isJson(Buffer.from(JSON.stringify(value, null, space)))).toBe(true);
    }),
  );
});

test('says the same as the parser of what is nearly a value', () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...PIECES), { maxLength: 12 }), pieces => {
      const bytes = Buffer.from(pieces.join(''));
      expect(isJson(bytes)).toBe(parses(bytes));
    }),
    { numRuns: 3000 },
  );
});

test('says the same as the parser of a value of which one byte was changed', () => {
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
  '%j is no value',
  text => {
    expect(isJson(Buffer.from(text))).toBe(false);
  },
);

test('is true of values nested deeper than any stack, and false when one of their ends is missing', () => {
  const depth = 300_000;
  const lists = '['.repeat(depth) + ']'.repeat(depth);
  expect(isJson(Buffer.from(lists))).toBe(true);
  expect(isJson(Buffer.from(lists.slice(0, -1)))).toBe(false);
  expect(isJson(Buffer.from(`${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`))).toBe(true);
});

const LONG_TEXT = `"${'x'.repeat(40)}`;

test('bytes inside of a field leave the fields around it as they are, or make the whole no JSON', () => {
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

test('every value stays inside of its field', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.nat(60), (value, length) => {
      const text = JSON.stringify({ ['\\"'.repeat(length)]: value, '"': '\\'.repeat(length) });
      expect(staysInside(Buffer.from(text))).toBe(true);
    }),
  );
});

test.each([
  ['another member', `1,"code":500`],
  ['another member behind a long text', `${LONG_TEXT}","code":500`],
  ['an end of the object around it', '1}'],
  ['a text that does not end', LONG_TEXT],
  ['a text whose last quote is escaped', `${LONG_TEXT}\\\\\\"`],
  ['a container that does not end', '[1'],
  ['more ends than beginnings', '[1]]['],
])('does not stay inside: %s', (_, text) => {
  expect(staysInside(Buffer.from(text))).toBe(false);
});
