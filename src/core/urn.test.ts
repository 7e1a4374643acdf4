import fc from 'fast-check';
import { expect, test } from 'vitest';
import { formatUrn, isFunctionName, isVersionNumber, LATEST, normalizeVersion, parseUrn } from './urn.ts';

const letters = 'abcdefghijklmnopqrstuvwxyz';
const lower = [...`${letters}0123456789-`];
const alphanumeric = [...`${letters}${letters.toUpperCase()}0123456789`];
const textOf = (characters: readonly string[], minLength: number, maxLength: number) =>
  fc.string({ unit: fc.constantFrom(...characters), minLength, maxLength });

const name = fc
  .tuple(textOf(alphanumeric, 1, 16), textOf(lower, 1, 127))
  .map(([service, short]) => `0@${service}@${short}`);
const version = fc.oneof(
  fc.constant(LATEST),
  fc
    .tuple(textOf(alphanumeric, 1, 1), textOf([...alphanumeric, '.', '_', '-'], 0, 40), textOf(alphanumeric, 1, 1))
    .map(parts => parts.join(''))
    .filter(text => text !== 'latest'),
);

test('every name of the format is a function name', () => {
  fc.assert(fc.property(name, text => isFunctionName(text)));
});

test.each([
  ['', 'empty'],
  ['demo@hello', 'without 0@'],
  ['1@demo@hello', 'another number than 0'],
  ['0@demo', 'without a name'],
  ['0@@hello', 'an empty service'],
  ['0@demo@', 'an empty name'],
  ['0@de-mo@hello', 'a service with "-"'],
  ['0@demo@Hello', 'a name with an upper-case letter'],
  ['0@demo@he_llo', 'a name with "_"'],
  ['0@demo@hello\n', 'a line end'],
  [`0@${'a'.repeat(17)}@x`, 'a service of 17 characters'],
  [`0@a@${'x'.repeat(128)}`, 'a name of 128 characters'],
])('the text %j is not a function name: %s', text => {
  expect(isFunctionName(text)).toBe(false);
});

test('a version number has 1 to 42 characters, starts and ends with a letter or digit, and is not "latest"', () => {
  for (const good of ['v1', '1', 'a.b_c-d', 'A', 'x'.repeat(42), 'Latest', 'latest1'])
    expect(isVersionNumber(good)).toBe(true);
  for (const bad of ['', 'latest', '$latest', '-v1', 'v1-', 'v 1', 'v:1', 'x'.repeat(43), 'v1\n']) {
    expect(isVersionNumber(bad)).toBe(false);
  }
});

test('latest is another spelling of $latest', () => {
  expect(normalizeVersion('latest')).toBe(LATEST);
  expect(normalizeVersion('v1')).toBe('v1');
});

test('a formatted URN is parsed to the same parts', () => {
  fc.assert(
    fc.property(
      textOf(lower.slice(0, 26), 1, 8),
      textOf(alphanumeric, 1, 64),
      name,
      fc.option(version),
      (business, tenant, fn, v) => {
        const urn = { business, tenant, name: fn, version: v };
        expect(parseUrn(formatUrn(urn))).toEqual(urn);
      },
    ),
  );
});

test('a URN with the version latest is parsed as $latest', () => {
  expect(parseUrn('sn:cn:yrk:default:function:0@demo@hello:latest')).toEqual({
    business: 'yrk',
    tenant: 'default',
    name: '0@demo@hello',
    version: LATEST,
  });
});

test('parseUrn never throws, and formatUrn returns the text of every parsed URN', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.string().map(text => `sn:cn:yrk:default:function:0@a@b:${text}`),
      ),
      text => {
        const urn = parseUrn(text);
        if (urn !== null) expect([text, text.replace(/:latest$/, `:${LATEST}`)]).toContain(formatUrn(urn));
      },
    ),
  );
});

test.each([
  '0@demo@hello',
  'sn:cn:yrk:default:function:demo',
  'sn:cn:yrk:default:function:0@demo@hello:',
  'sn:cn:yrk:default:function:0@demo@hello:v1:v2',
  'sn:cn::default:function:0@demo@hello:v1',
  'sn:cn:yrk:-bad:function:0@demo@hello:v1',
  'sn:us:yrk:default:function:0@demo@hello:v1',
])('the text %s is not a URN', text => {
  expect(parseUrn(text)).toBeNull();
});
