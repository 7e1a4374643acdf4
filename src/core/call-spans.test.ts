import { expect, test } from 'vitest';
import { readCallSpans } from './call-spans.ts';
import { LIMITS } from './limits.ts';

const { count, nameChars, attributes, keyChars, valueChars } = LIMITS.callSpans;
const SPAN = { name: 'fetch', startMicros: 5, micros: 7 };

test('reads spans with their parents, attributes and errors', () => {
  const child = { ...SPAN, parent: 0, attributes: { url: 'x', n: 1.5, isNew: true }, error: 'no' };
  expect(readCallSpans(JSON.stringify({ spans: [SPAN, child], dropped: 2 }))).toEqual({
    ...{ spans: [{ ...SPAN, parent: null }, child], dropped: 2 },
  });
});

test.each(['', 'nonsense', '[]', 'null', '{"spans":{}}', '{"spans":"x"}'])('%j has no spans', text => {
  expect(readCallSpans(text)).toEqual({ spans: [], dropped: 0 });
});

test('an invalid span is dropped and counted, and its children become children of no span', () => {
  const child = { ...SPAN, parent: 1 };
  const grandchild = { ...SPAN, parent: 2 };
  const { spans, dropped } = readCallSpans(JSON.stringify({ spans: [SPAN, { name: 1 }, child, grandchild] }));
  expect(spans.map(({ parent }) => parent)).toEqual([null, null, 1]);
  expect(dropped).toBe(1);
});

test.each([[-1], [1.5], [1e16], ['5'], [null]])('a span that starts at %j is dropped', startMicros => {
  expect(readCallSpans(JSON.stringify({ spans: [{ ...SPAN, startMicros }] }))).toEqual({ spans: [], dropped: 1 });
});

test('a parent that is not an earlier span is none', () => {
  const spans = [0, 1, -1, '0', null].map(parent => ({ ...SPAN, parent }));
  expect(readCallSpans(JSON.stringify({ spans })).spans.map(({ parent }) => parent)).toEqual([
    null,
    null,
    null,
    null,
    null,
  ]);
});

test('names, errors, attributes and their number have limits', () => {
  const long = 'x'.repeat(1000);
  const many = Object.fromEntries(Array.from({ length: 100 }, (_, at) => [`a${at}`, long]));
  const span = { ...SPAN, name: long, error: long, attributes: { [long]: 1, list: [1], nothing: null, ...many } };
  const [read] = readCallSpans(JSON.stringify({ spans: [span] })).spans;
  expect([read?.name.length, read?.error?.length]).toEqual([nameChars, valueChars]);
  const kept = Object.entries(read?.attributes ?? {});
  expect(kept).toHaveLength(attributes);
  expect(kept.every(([key, value]) => key.length <= keyChars && String(value).length === valueChars)).toBe(true);
});

test('spans above the limit are dropped and counted', () => {
  const spans = Array.from({ length: count + 3 }, () => SPAN);
  const read = readCallSpans(JSON.stringify({ spans, dropped: 4 }));
  expect([read.spans.length, read.dropped]).toEqual([count, 7]);
});
