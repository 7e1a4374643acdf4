import { SignJWT } from 'jose';
import { describe, expect, test } from 'vitest';
import { FUNCTION, NAME, testMeta } from '../../test/meta/meta.ts';
import { createJwtVerifier } from '../http/access/jwt.ts';

const SECRET = Buffer.from('0123456789abcdef0123456789abcdef');
const secured = () => ({ entry: { auth: createJwtVerifier({ key: { kind: 'secret', secret: SECRET } }) } });
const bearer = async (role: string, tenant = 'acme') => ({
  authorization: `Bearer ${await new SignJWT({ sub: tenant, role, exp: Math.floor(Date.now() / 1000) + 3600 })
    .setProtectedHeader({ alg: 'HS256' })
    .sign(SECRET)}`,
});

const CHANGES: [string, string, unknown][] = [
  ['POST', '/functions', FUNCTION],
  ['PUT', `/functions/${NAME}`, {}],
  ['DELETE', `/functions/${NAME}`, undefined],
  ['POST', `/functions/${NAME}/versions`, {}],
  ['POST', '/functions/reserve-instance', {}],
  ['PUT', '/functions/reserve-instance', {}],
  ['DELETE', '/functions/reserve-instance', undefined],
  ['POST', '/podpools', { pools: [] }],
  ['PUT', '/podpools/a', {}],
  ['DELETE', '/podpools?id=a', undefined],
];
const READS = ['/functions', `/functions/${NAME}?version=latest`, `/functions/${NAME}/versions`, '/podpools'];

describe('meta_service with authentication', () => {
  test.each(CHANGES)('the route %s %s needs a token with the role developer', async (method, path, body) => {
    await using meta = await testMeta(secured());
    expect(await meta.send(method, path, body)).toMatchObject({ status: 401, body: { code: 401 } });
    for (const role of ['viewer', 'user']) {
      expect(await meta.send(method, path, body, await bearer(role))).toMatchObject({
        status: 403,
        body: { code: 403 },
      });
    }
    expect((await meta.send(method, path, body, await bearer('developer'))).status).toBeLessThan(401);
  });

  test.each(READS)('GET %s needs a token of any role', async path => {
    await using meta = await testMeta(secured());
    expect(await meta.send('GET', path)).toMatchObject({ status: 401 });
    expect(await meta.send('GET', path, undefined, await bearer('viewer'))).toMatchObject({ status: 200 });
  });

  test('a request has the tenant of its token; a header with another tenant is answered 403', async () => {
    await using meta = await testMeta(secured());
    const headers = await bearer('developer');
    expect((await meta.send('POST', '/functions', FUNCTION, headers)).body.function.tenantId).toBe('acme');
    expect(await meta.send('GET', '/functions', undefined, { ...headers, 'x-tenant-id': 'other' })).toMatchObject({
      status: 403,
    });
    expect((await meta.send('GET', '/functions', undefined, await bearer('viewer', 'other'))).body.result.total).toBe(
      0,
    );
  });
});

test('a path that cannot be decoded is answered 400 with code 4104', async () => {
  await using meta = await testMeta();
  expect(await meta.send('GET', '/functions/%ff?versionNumber=latest')).toMatchObject({
    status: 400,
    body: { code: 4104 },
  });
});

test('an invalid tenant header is answered 400 with code 4104', async () => {
  await using meta = await testMeta();
  expect(await meta.send('GET', '/functions', undefined, { 'x-tenant-id': '-bad-' })).toMatchObject({
    status: 400,
    body: { code: 4104 },
  });
});

test('meta_service rejects unknown routes, foreign hosts, cross-site changes and large bodies', async () => {
  await using meta = await testMeta();
  expect(await meta.send('GET', '//x')).toEqual({
    status: 404,
    body: { code: 404, message: 'route not found: GET /x' },
  });
  expect(await meta.send('PATCH', '/functions')).toMatchObject({ status: 404 });
  expect(await meta.send('GET', '/functions', undefined, { host: 'evil.example' })).toMatchObject({ status: 421 });
  expect(await meta.send('DELETE', '/podpools?id=a', undefined, { origin: 'http://evil.example' })).toMatchObject({
    status: 403,
  });
  expect(await meta.send('POST', '/functions', ' '.repeat(1024 * 1024 + 1))).toMatchObject({
    status: 413,
    body: { code: 413 },
  });
});

test('an internal error is answered 500 without its text', async () => {
  await using meta = await testMeta();
  await meta.database.schema.dropTable('pools').execute();
  const { status, body } = await meta.send('GET', '/podpools');
  expect({ status, code: body.code }).toEqual({ status: 500, code: 500 });
  expect(body.message).toMatch(/^internal error: the log has it under trace id /);
});

test('GET /openapi.json documents every operation', async () => {
  await using meta = await testMeta();
  const { body } = await meta.send('GET', '//openapi.json');
  const operations = Object.entries<Record<string, { operationId: string }>>(body.paths).flatMap(([, methods]) =>
    Object.values(methods).map(operation => operation.operationId),
  );
  expect(operations.sort()).toEqual(
    [
      'createPools',
      'createReservedInstances',
      'deleteFunction',
      'deletePools',
      'deleteReservedInstances',
      'getFunction',
      'health',
      'listFunctions',
      'listPools',
      'listReservedInstances',
      'listVersions',
      'metrics',
      'openapi',
      'publishFunction',
      'ready',
      'registerFunction',
      'updateFunction',
      'updatePool',
      'updateReservedInstances',
    ].sort(),
  );
});
