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
  ['an expensive read', { access: 'read', docs, costly: 'scan' }, true],
  ['any other route', { access: 'read', docs }, false],
])('the API document lists 429 with Retry-After where the entry answers 429: %s', (_, config, isDocumented) => {
  const refused = answersOf(config)[429];
  expect(refused !== undefined).toBe(isDocumented);
  if (isDocumented) expect(Object.keys(refused?.headers ?? {})).toEqual(['X-Trace-Id', 'Retry-After']);
});

test('the API document merges headers and content when route and entry both describe a status', () => {
  const text = { description: 'no', headers: { X: {} }, content: { 'text/plain': {} } };
  const refused = answersOf({ access: 'read', costly: 'scan', docs: { ...docs, response: { 429: text } } })[429];
  expect(Object.keys(refused?.headers ?? {})).toEqual(['X-Trace-Id', 'Retry-After', 'X']);
  expect(Object.keys(refused?.content ?? {})).toEqual(['application/json', 'text/plain']);
});

test('the API document marks a body as optional and drops the internal x- mark', () => {
  const config: Route = { access: 'write', docs: { ...docs, body: {}, isBodyOptional: true } };
  const marks = Object.entries(documentRoute({ config } as RouteOptions)).filter(([name]) => name.startsWith('x-'));
  const post = { ...Object.fromEntries(marks), requestBody: { required: true } };
  const put = { requestBody: { required: true } };
  expect(withOptionalBodies({ paths: { '/x': { post, put } } })).toEqual({
    paths: { '/x': { post: { requestBody: { required: false } }, put } },
  });
});
