import { expect, test } from 'vitest';
import { readCallSpans } from '../core/call-spans.ts';
import { LIMITS } from '../core/limits.ts';
import { Redaction } from './redaction.ts';
import { SecretValues } from './secret-values.ts';
import { toSpansColumn } from './span-column.ts';

const OPTIONS = {
  redaction: new Redaction(['password', 'token']),
  secrets: new SecretValues(['s3cret-value']),
  hasAttributes: true,
};
const sent = (...spans: readonly object[]) =>
  Buffer.from(JSON.stringify({ spans: spans.map(span => ({ startMicros: 0, micros: 1, name: 'n', ...span })) }));
const read = (column: string) => readCallSpans(column).spans;

test('values of hidden names and of secrets are replaced in names, attributes and errors', () => {
  const attributes = { password: 'hunter2', dbPassword: 5, url: '/?token=abc&n=1', note: 'with s3cret-value', n: 1 };
  const column = toSpansColumn(sent({ name: 'of s3cret-value', attributes, error: 'token=abc' }), OPTIONS);
  expect(read(column)).toMatchObject([
    {
      ...{ name: 'of [redacted]', error: 'token=[redacted]' },
      attributes: {
        ...{ password: '[redacted]', dbPassword: '[redacted]', url: '/?token=[redacted]&n=1' },
        ...{ note: 'with [redacted]', n: 1 },
      },
    },
  ]);
});

test('the beginning of a secret at the end of a cut value is replaced', () => {
  const value = `${'x'.repeat(LIMITS.callSpans.valueChars - 6)}s3cret`;
  const [span] = read(toSpansColumn(sent({ attributes: { value } }), OPTIONS));
  expect(span?.attributes?.value).not.toContain('s3cret');
});

test('without texts only names and times are stored, and whether a span failed', () => {
  const column = toSpansColumn(sent({ attributes: { a: 1 }, error: 'no' }), { ...OPTIONS, hasAttributes: false });
  expect(read(column)).toEqual([{ name: 'n', parent: null, startMicros: 0, micros: 1, error: '' }]);
});

test('the last spans above the bytes of a record are dropped and counted', () => {
  const attributes = Object.fromEntries(Array.from({ length: 8 }, (_, at) => [`a${at}`, '€'.repeat(200)]));
  const spans = Array.from({ length: 10 }, () => ({ attributes }));
  const column = toSpansColumn(sent(...spans), OPTIONS);
  const { spans: kept, dropped } = readCallSpans(column);
  expect(Buffer.byteLength(column)).toBeLessThanOrEqual(LIMITS.callSpansBytes.stored + 64);
  expect([kept.length > 0, kept.length + dropped]).toEqual([true, 10]);
});

test('a call without spans has an empty column', () => {
  expect(toSpansColumn(undefined, OPTIONS)).toBe('');
  expect(toSpansColumn(sent(), OPTIONS)).toBe('');
  expect(toSpansColumn(Buffer.from('nonsense'), OPTIONS)).toBe('');
});
