import { expect, test } from 'vitest';
import { forwardedHeaders } from './forwarded-headers.ts';

test('forwardedHeaders passes headers that the platform does not own to the handler', () => {
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
])('forwardedHeaders drops %s', name => {
  expect(forwardedHeaders({ [name]: 'x' })).toEqual({});
});

test('forwardedHeaders drops headers that Connection names', () => {
  expect(forwardedHeaders({ connection: 'keep-alive, X-Hop', 'x-hop': '1', 'x-end': '2' })).toEqual({ 'x-end': '2' });
});

test.each([
  ['a=1; iam_token=abc; b=2', 'a=1; b=2'],
  ['iam_token=abc;a=1', 'a=1'],
  ['iam_token=abc', undefined],
  ['not_iam_token=abc', 'not_iam_token=abc'],
])('forwardedHeaders removes the platform’s token from the cookie %s', (cookie, expected) => {
  expect(forwardedHeaders({ cookie }).cookie).toBe(expected);
});
