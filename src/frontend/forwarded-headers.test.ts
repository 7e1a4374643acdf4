import { expect, test } from 'vitest';
import { forwardedHeaders } from './forwarded-headers.ts';

test('headers that the platform does not own are passed to the handler', () => {
  const headers = { 'content-type': 'application/json', 'user-agent': 'me', 'x-own': 'ä', 'set-cookie': ['a', 'b'] };
  expect(forwardedHeaders(headers)).toEqual({ ...headers, 'set-cookie': 'a, b' });
});

test.each([
  'authorization',
  'x-auth',
  'tenantid',
  'x-tenant-id',
  'x-trace-id',
  'x-request-id',
  'traceparent',
  'x-invoke-timeout-ms',
  'host',
  'content-length',
  'connection',
  'keep-alive',
  'transfer-encoding',
  'te',
  'trailer',
  'upgrade',
  'expect',
  'proxy-authorization',
])('%s is not', name => {
  expect(forwardedHeaders({ [name]: 'x' })).toEqual({});
});

test('headers that Connection names belong to the connection', () => {
  expect(forwardedHeaders({ connection: 'keep-alive, X-Hop', 'x-hop': '1', 'x-end': '2' })).toEqual({ 'x-end': '2' });
});

test.each([
  ['a=1; iam_token=abc; b=2', 'a=1; b=2'],
  ['iam_token=abc;a=1', 'a=1'],
  ['iam_token=abc', undefined],
  ['not_iam_token=abc', 'not_iam_token=abc'],
])('cookie %s loses the platform’s token', (cookie, expected) => {
  expect(forwardedHeaders({ cookie }).cookie).toBe(expected);
});
