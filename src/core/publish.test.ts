import { expect, test } from 'vitest';
import { readPublish } from './publish.ts';

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
