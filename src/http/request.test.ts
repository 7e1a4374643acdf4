import Fastify from 'fastify';
import { describe, expect, test } from 'vitest';
import { checkQueries, traceIdOf } from './request.ts';

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

async function ask(query: string, config: object = { docs: { querystring: {} } }) {
  const app = Fastify();
  checkQueries(app);
  app.get('/x', { config: config as never }, async request => request.query);
  await app.ready();
  const answer = await app.inject(`/x?${query}`);
  return { status: answer.statusCode, body: answer.json() };
}

test.each([
  ['a byte that is not UTF-8', 'path=/tmp/x%FF', 'path'],
  ['half of a surrogate pair', 'a=1&path=%ED%B3%BF', 'path'],
  ['a truncated character', 'name=%C3', 'name'],
  ['an escape without two digits', 'name=100%', 'name'],
  ['an escape with other letters', 'name=%zz', 'name'],
  ['a repeated parameter, once wrong', 'env=A%3D1&env=A%3D%FF', 'env'],
  ['a name', '%FF=1', 'a name'],
])('a query with %s is rejected', async (_case, query, name) => {
  const { body } = await ask(query);
  expect(body.message).toBe(`invalid query: ${name} must be UTF-8, percent-encoded`);
});

test('a query may contain text in any script and repeated parameters', async () => {
  const query = 'path=%2Ft%C3%A9%20%F0%9F%98%80+%25FF&env=a&env=b&empty=&%E6%97%A5=1';
  const read = { path: '/té 😀 %FF', env: ['a', 'b'], empty: '', 日: '1' };
  expect(await ask(query)).toEqual({ status: 200, body: read });
});

test('a query that belongs to a sandbox is passed unchecked', async () => {
  const config = { docs: { querystring: {} }, hasForeignQuery: true };
  expect(await ask('path=%FF', config)).toMatchObject({ status: 200, body: { path: '%FF' } });
});
