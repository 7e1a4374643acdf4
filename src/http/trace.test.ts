import { describe, expect, test } from 'vitest';
import { traceIdOf } from './trace.ts';

test('traceIdOf returns X-Trace-Id, else X-Request-Id, else a new UUID', () => {
  expect(traceIdOf({ 'x-trace-id': 'a', 'x-request-id': 'b' })).toBe('a');
  expect(traceIdOf({ 'x-trace-id': '', 'x-request-id': 'b' })).toBe('b');
  const made = traceIdOf({});
  expect(made).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(traceIdOf({})).not.toBe(made);
});

test('traceIdOf cuts a trace id to 128 characters', () => {
  expect(traceIdOf({ 'x-trace-id': 'x'.repeat(200) })).toBe('x'.repeat(128));
});

test.each(['\xe4', 't\xc3\xa4', 'a\tb', 'a\x7f', 'ż', 'a\nb'])(
  'traceIdOf ignores a header that is not printable ASCII: %j',
  odd => {
    expect(traceIdOf({ 'x-trace-id': odd })).toMatch(/^[0-9a-f]{8}-/);
    expect(traceIdOf({ 'x-trace-id': odd, 'x-request-id': 'b' })).toBe('b');
    expect(traceIdOf({ 'x-request-id': odd })).toMatch(/^[0-9a-f]{8}-/);
  },
);

describe('traceIdOf', () => {
  const id = '4bf92f3577b34da6a3ce929d0e0e4736';
  const sent = `00-${id}-00f067aa0ba902b7-01`;

  test('traceIdOf returns the trace id of a valid traceparent unless another header names a trace id', () => {
    expect(traceIdOf({ traceparent: sent })).toBe(id);
    expect(traceIdOf({ traceparent: sent, 'x-trace-id': '' })).toBe(id);
    expect(traceIdOf({ traceparent: sent, 'x-trace-id': 'a' })).toBe('a');
    expect(traceIdOf({ traceparent: sent, 'x-request-id': 'b' })).toBe('b');
  });

  test.each(['', 'nonsense', `${sent}, ${sent}`, sent.toUpperCase(), `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`])(
    'traceIdOf ignores an invalid traceparent: %s',
    traceparent => {
      expect(traceIdOf({ traceparent })).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4/);
    },
  );
});
