import { expect, test } from 'vitest';
import { testFrontend } from '../../../test/http/frontend.ts';
import { createLocalTokenVerifier } from './credentials.ts';

const TOKEN = 'c2VjcmV0LW9mLXRoZS1kYXRhLWRpcmVjdG9yeQ';
const secured = () => testFrontend({ auth: createLocalTokenVerifier(TOKEN) });

test.each([
  ['Authorization', { authorization: `Bearer ${TOKEN}` }],
  ['X-Auth', { 'x-auth': TOKEN }],
  ['the cookie', { cookie: `iam_token=${TOKEN}` }],
])('the local token gives access to every tenant: %s', async (_name, headers) => {
  await using frontend = secured();
  expect(await frontend.send({ url: '/api/agent', headers })).toMatchObject({ status: 200 });
  const named = { ...headers, 'x-tenant-id': 'somebody' };
  expect(await frontend.send({ url: '/api/agent', headers: named })).toMatchObject({ status: 200 });
});

test.each([
  ['no token', {}, 'no token was sent'],
  ['another token of the same length', { 'x-auth': `d${TOKEN.slice(1)}` }, 'the token is not that of this service'],
  ['a part of the token', { 'x-auth': TOKEN.slice(0, -1) }, 'the token is not that of this service'],
  ['the token with further characters', { authorization: `Bearer ${TOKEN}x` }, 'the token is not that of this service'],
  [
    'a token with characters of several bytes',
    { 'x-auth': `\u00ff${TOKEN.slice(1)}` },
    'the token is not that of this service',
  ],
])('a request without the local token is 401, except health: %s', async (_name, headers, reason) => {
  await using frontend = secured();
  for (const [method, url] of [
    ['GET', '/api/agent'],
    ['POST', '/api/agent'],
    ['POST', '/api/agent/1/invoke'],
    ['GET', '/metrics'],
    ['GET', '/serverless/v1/http/x?instance=1&port=80'],
  ] as const) {
    const answer = await frontend.send({ method, url, headers, ...(method === 'POST' ? { body: {} } : {}) });
    expect(answer).toMatchObject({ status: 401, headers: { 'www-authenticate': 'Bearer' } });
    expect(answer.body).toMatchObject({
      code: 401,
      message: expect.stringContaining(`authentication failed: ${reason}`),
    });
    expect(answer.text).not.toContain(TOKEN.slice(1, -1));
  }
  for (const url of ['/healthz', '/readyz']) {
    expect(await frontend.send({ url, headers })).toMatchObject({ status: 200 });
  }
});
