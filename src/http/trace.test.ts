import { expect, test } from 'vitest';
import { traceIdOf } from './trace.ts';

test('X-Trace-Id counts, else X-Request-Id, else a new UUID', () => {
  expect(traceIdOf({ 'x-trace-id': 'a', 'x-request-id': 'b' })).toBe('a');
  expect(traceIdOf({ 'x-trace-id': '', 'x-request-id': 'b' })).toBe('b');
  const made = traceIdOf({});
  expect(made).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(traceIdOf({})).not.toBe(made);
});

test('a trace id is cut to 128 characters', () => {
  expect(traceIdOf({ 'x-trace-id': 'x'.repeat(200) })).toBe('x'.repeat(128));
});
