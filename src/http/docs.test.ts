import type { RouteOptions } from 'fastify';
import { expect, test } from 'vitest';
import { documentRoute, withOptionalBodies } from './docs.ts';
import type { Route } from './route-config.ts';

const docs = { summary: '', operationId: 'x', response: { 200: { description: '' } } };

function answersOf(config: Route): Record<string, { headers: object; content?: object }> {
  return (documentRoute({ config } as RouteOptions) as { response: never }).response;
}

test.each<[string, Route, boolean]>([
  ['a route with a body', { access: 'write', docs: { ...docs, body: {} } }, true],
  ['a read that costs much', { access: 'read', docs, costly: 'scan' }, true],
  ['any other', { access: 'read', docs }, false],
])('429 with Retry-After is documented where the entry answers it: %s', (_, config, isDocumented) => {
  const refused = answersOf(config)[429];
  expect(refused !== undefined).toBe(isDocumented);
  if (isDocumented) expect(Object.keys(refused?.headers ?? {})).toEqual(['X-Trace-Id', 'Retry-After']);
});

test('an answer of the route beside one of the entry has the headers of both, and its own content too', () => {
  const text = { description: 'no', headers: { X: {} }, content: { 'text/plain': {} } };
  const refused = answersOf({ access: 'read', costly: 'scan', docs: { ...docs, response: { 429: text } } })[429];
  expect(Object.keys(refused?.headers ?? {})).toEqual(['X-Trace-Id', 'Retry-After', 'X']);
  expect(Object.keys(refused?.content ?? {})).toEqual(['application/json', 'text/plain']);
});

test('a body that may be left out is said to be optional, and no mark of that is left', () => {
  const config: Route = { access: 'write', docs: { ...docs, body: {}, isBodyOptional: true } };
  const marks = Object.entries(documentRoute({ config } as RouteOptions)).filter(([name]) => name.startsWith('x-'));
  const post = { ...Object.fromEntries(marks), requestBody: { required: true } };
  const put = { requestBody: { required: true } };
  expect(withOptionalBodies({ paths: { '/x': { post, put } } })).toEqual({
    paths: { '/x': { post: { requestBody: { required: false } }, put } },
  });
});
