import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  defaultVersionNumber,
  formatRevisionId,
  formatTimestamp,
  nextRevisionId,
  parseRevisionId,
  readPublish,
} from './revision.ts';

const NOON = Date.UTC(2026, 10, 20, 12, 34, 56, 789);
const anyTime = fc.integer({ min: Date.UTC(2000, 0, 1), max: Date.UTC(2200, 0, 1) });

test('a timestamp is formatted as date, time with milliseconds, and UTC', () => {
  expect(formatTimestamp(NOON)).toBe('2026-11-20 12:34:56.789 UTC');
});

test('a revision id is formatted as yyyyMMddHHmmssSSS in UTC', () => {
  expect(formatRevisionId(NOON)).toBe('20261120123456789');
});

test('a default version number is formatted as v, the date, and the time to the second', () => {
  expect(defaultVersionNumber(NOON)).toBe('v20261120-123456');
});

test('a revision id is parsed to the time from which it was formatted', () => {
  fc.assert(fc.property(anyTime, ms => parseRevisionId(formatRevisionId(ms)) === ms));
});

test('the first revision id is the current time', () => {
  expect(nextRevisionId(NOON, null)).toBe('20261120123456789');
});

test('revision ids strictly increase as numbers and as texts, even when the clock goes back', () => {
  fc.assert(
    fc.property(fc.array(anyTime, { minLength: 2, maxLength: 50 }), times => {
      let previous: string | null = null;
      for (const now of times) {
        const next = nextRevisionId(now, previous);
        expect(next).toMatch(/^\d{17}$/);
        if (previous !== null) {
          expect(next > previous).toBe(true);
          expect(BigInt(next)).toBeGreaterThan(BigInt(previous));
        }
        previous = next;
      }
    }),
  );
});

test('the revision id after the last millisecond of a year belongs to the next year', () => {
  const last = formatRevisionId(Date.UTC(2027, 0, 1) - 1);
  expect(nextRevisionId(0, last)).toBe('20270101000000000');
});

test('parseRevisionId throws when the text is not a revision id', () => {
  expect(() => parseRevisionId('2026')).toThrow('not a revision id: 2026');
});

test('publish requires revisionId, and every other field may be absent, null or empty', () => {
  const empty = { revisionId: 'r', versionNumber: '', versionDesc: '', kind: '' };
  expect(readPublish({ revisionId: 'r' })).toEqual({ ok: true, value: empty });
  expect(readPublish({ revisionId: 'r', versionNumber: null, kind: '' })).toEqual({ ok: true, value: empty });
  expect(readPublish({})).toEqual({ ok: false, problems: ['revisionId is required'] });
});

test('wrong types, unknown kinds and long descriptions are reported together', () => {
  expect(readPublish({ revisionId: 1, versionNumber: 2, versionDesc: 'x'.repeat(1025), kind: 'x' })).toEqual({
    ok: false,
    problems: [
      'revisionId must be a string',
      'versionNumber must be a string',
      'versionDesc must have at most 1024 characters, got 1025',
      'kind must be one of "agent", "faas", "yrlib", "custom", got "x"',
    ],
  });
});
