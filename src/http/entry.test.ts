import net from 'node:net';
import { SignJWT } from 'jose';
import { describe, expect, test } from 'vitest';
import { SPEC, testFrontend } from '../../test/http/frontend.ts';
import { newInstance } from '../../test/http/memory-instances.ts';
import { invalidRequest } from '../core/error.ts';
import { createJwtVerifier } from './access/jwt.ts';

const SECRET = Buffer.from('0123456789abcdef0123456789abcdef');
const secured = () => ({ auth: createJwtVerifier({ key: { kind: 'secret', secret: SECRET } }) });
const token = (claims: Record<string, unknown> = {}) =>
  new SignJWT({ sub: 'acme', exp: Math.floor(Date.now() / 1000) + 3600, ...claims })
    .setProtectedHeader({ alg: 'HS256' })
    .sign(SECRET);

describe('every entry', () => {
  test('GET /healthz is 200', async () => {
    await using frontend = testFrontend();
    expect(await frontend.send({ url: '/healthz' })).toMatchObject({ status: 200, body: { status: 'ok' } });
  });

  test('GET /readyz is 200, or 503 with each component that is not ready', async () => {
    let components: Record<string, string> = {};
    await using frontend = testFrontend({ ready: async () => components });
    expect(await frontend.send({ url: '/readyz' })).toMatchObject({ status: 200, body: { status: 'ok' } });
    components = { scheduler: 'adopting instances' };
    expect(await frontend.send({ url: '/readyz' })).toMatchObject({
      status: 503,
      body: { code: 503, message: 'not ready: scheduler', components },
    });
  });

  test('GET /metrics is the Prometheus text', async () => {
    await using frontend = testFrontend();
    const answer = await frontend.send({ url: '/metrics' });
    expect(answer).toMatchObject({ status: 200, text: 'up 1\n' });
    expect(answer.headers['content-type']).toContain('text/plain');
  });

  test('GET /openapi.json documents every route', async () => {
    await using frontend = testFrontend();
    const { status, body } = await frontend.send({ url: '/openapi.json' });
    expect(status).toBe(200);
    const { openapi, paths } = body as { openapi: string; paths: Record<string, Record<string, object>> };
    expect(openapi).toBe('3.1.0');
    const operations = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map(method => `${method} ${path}`),
    );
    expect(operations.sort()).toEqual([
      'delete /api/agent/{instanceId}',
      'delete /api/agent/{instanceId}/alarms/{name}',
      'delete /api/agent/{instanceId}/files',
      'delete /api/e2b/keys/{id}',
      'delete /serverless/v1/http/{*}',
      'get /api/agent',
      'get /api/agent/{instanceId}',
      'get /api/agent/{instanceId}/alarms',
      'get /api/agent/{instanceId}/exec',
      'get /api/agent/{instanceId}/export',
      'get /api/agent/{instanceId}/files/download',
      'get /api/agent/{instanceId}/files/list',
      'get /api/agent/{instanceId}/files/stat',
      'get /api/agent/{instanceId}/files/watch',
      'get /api/agent/{instanceId}/logs',
      'get /api/agent/{instanceId}/processes',
      'get /api/agent/{instanceId}/processes/{process}/attach',
      'get /api/agent/{instanceId}/stats',
      'get /api/e2b/keys',
      'get /healthz',
      'get /metrics',
      'get /openapi.json',
      'get /readyz',
      'get /serverless/v1/http/{*}',
      'get /serverless/v1/ws',
      'patch /api/agent/{instanceId}',
      'patch /serverless/v1/http/{*}',
      'post /api/agent',
      'post /api/agent/import',
      'post /api/agent/{instanceId}/code',
      'post /api/agent/{instanceId}/exec',
      'post /api/agent/{instanceId}/files/mkdir',
      'post /api/agent/{instanceId}/files/rename',
      'post /api/agent/{instanceId}/files/upload',
      'post /api/agent/{instanceId}/invoke',
      'post /api/agent/{instanceId}/link',
      'post /api/agent/{instanceId}/pause',
      'post /api/agent/{instanceId}/processes',
      'post /api/agent/{instanceId}/processes/{process}/signal',
      'post /api/agent/{instanceId}/restart',
      'post /api/agent/{instanceId}/resume',
      'post /api/agent/{instanceId}/sleep',
      'post /api/agent/{instanceId}/wake',
      'post /api/e2b/keys',
      'post /serverless/v1/http/{*}',
      'put /api/agent/{instanceId}/alarms/{name}',
      'put /api/agent/{instanceId}/ttl',
      'put /serverless/v1/http/{*}',
    ]);
    expect(paths['/api/agent']?.post).toMatchObject({
      responses: { 200: {}, 400: {}, 401: {}, 403: {}, 409: {}, 413: {}, 421: {}, 500: {} },
    });
  });
});

describe('unknown routes and methods', () => {
  test.each([
    ['GET', '/x'],
    ['POST', '/healthz'],
    ['PUT', '/api/agent'],
    ['PATCH', '/api/agent/1/ttl'],
    ['OPTIONS', '/api/agent'],
    ['PROPFIND', '/api/agent'],
    ['QUERY', '/api/agent'],
    ['TRACE', '/healthz'],
    ['GET', '/api/agent/1/invoke'],
    ['GET', '/api/agents'],
  ])('the entry answers 404 route not found to %s %s', async (method, url) => {
    await using frontend = testFrontend();
    const answer = await frontend.send({ method: method as 'GET', url: `${url}?token=secret` });
    expect(answer).toMatchObject({ status: 404, body: { code: 404, message: `route not found: ${method} ${url}` } });
    expect(answer.headers['x-trace-id']).toBeDefined();
    expect(frontend.requests).toEqual([{ method, route: '', status: 404 }]);
  });

  test('a path that cannot be decoded is 400', async () => {
    await using frontend = testFrontend();
    const answer = await frontend.send({ url: '/api/agent/%zz' });
    expect(answer).toMatchObject({ status: 400, body: { code: 400 } });
    expect(answer.headers['x-trace-id']).toBeDefined();
  });

  test('HEAD answers as GET without a body', async () => {
    await using frontend = testFrontend();
    const { id } = frontend.instances.put(newInstance(SPEC));
    for (const url of ['/healthz', '/api/agent', `/api/agent/${id}`]) {
      const [get, head] = [await frontend.send({ url }), await frontend.send({ method: 'HEAD', url })];
      expect(head).toMatchObject({ status: 200, text: '' });
      expect(head.headers['content-length']).toBe(get.headers['content-length']);
    }
  });
});

describe('trace', () => {
  test.each([
    ['X-Trace-Id', { 'x-trace-id': 'abc', 'x-request-id': 'def' }, 'abc'],
    ['X-Request-Id', { 'x-request-id': 'def' }, 'def'],
    ['cut to 128 characters', { 'x-trace-id': 'x'.repeat(300) }, 'x'.repeat(128)],
  ])('the trace id of a request returns as X-Trace-Id: %s', async (_, headers, traceId) => {
    await using frontend = testFrontend();
    for (const url of ['/healthz', '/nowhere', '/api/agent/1']) {
      expect((await frontend.send({ url, headers })).headers['x-trace-id']).toBe(traceId);
    }
  });

  test('a request without a trace id gets a new UUID', async () => {
    await using frontend = testFrontend();
    const ids = [await frontend.send({ url: '/healthz' }), await frontend.send({ url: '/healthz' })].map(
      answer => answer.headers['x-trace-id'],
    );
    expect(new Set(ids).size).toBe(2);
    expect(ids[0]).toMatch(/^[0-9a-f-]{36}$/);
  });
});

describe('Host and Origin', () => {
  const evil = { host: 'evil.example' };

  test.each(['/healthz', '/readyz', '/metrics'])('the route %s is answered under any Host', async url => {
    await using frontend = testFrontend();
    expect((await frontend.send({ url, headers: evil })).status).toBe(200);
  });

  test.each([
    ['GET', '/openapi.json'],
    ['GET', '/api/agent'],
    ['POST', '/api/agent'],
    ['DELETE', '/api/agent/1'],
    ['GET', '/nowhere'],
  ])('%s %s under another Host is 421', async (method, url) => {
    await using frontend = testFrontend();
    expect(await frontend.send({ method: method as 'GET', url, headers: evil })).toMatchObject({
      status: 421,
      body: { code: 421, message: expect.stringContaining('host not allowed: evil.example') },
    });
  });

  const crossSite: Record<string, string>[] = [
    { origin: 'http://evil.example' },
    { origin: 'null' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { origin: 'http://127.0.0.1:32768' },
    { origin: 'https://localhost' },
  ];
  const changing = [
    ['POST', '/api/agent'],
    ['POST', '/api/agent/1/invoke'],
    ['POST', '/api/agent/1/restart'],
    ['DELETE', '/api/agent/1'],
    ['PUT', '/nowhere'],
  ] as const;
  test.each(changing.flatMap(([method, url]) => crossSite.map(headers => [method, url, headers] as const)))(
    '%s %s with the foreign header %j is 403',
    async (method, url, headers) => {
      await using frontend = testFrontend();
      expect(await frontend.send({ method, url, headers })).toMatchObject({
        status: 403,
        body: { code: 403, message: 'cross-site requests are not allowed' },
      });
    },
  );

  test('a WebSocket upgrade from another site is 403, a plain GET is not', async () => {
    await using frontend = testFrontend();
    for (const headers of crossSite) {
      expect((await frontend.send({ url: '/api/agent', headers })).status).toBe(200);
      const upgrade = { ...headers, connection: 'upgrade', upgrade: 'WebSocket' };
      expect((await frontend.send({ url: '/api/agent', headers: upgrade })).status).toBe(403);
    }
  });
});

describe('authentication', () => {
  const PUBLIC = ['/healthz', '/readyz'];
  const GUARDED = [
    ['GET', '/metrics'],
    ['GET', '/openapi.json'],
    ['GET', '/api/agent'],
    ['POST', '/api/agent'],
    ['GET', '/api/agent/1'],
    ['DELETE', '/api/agent/1'],
    ['POST', '/api/agent/1/invoke'],
    ['POST', '/api/agent/1/restart'],
    ['POST', '/api/agent/1/code'],
    ['POST', '/api/agent/1/exec'],
    ['GET', '/api/agent/1/logs'],
  ] as const;

  test.each(PUBLIC)('the route %s needs no token', async url => {
    await using frontend = testFrontend(secured());
    expect((await frontend.send({ url })).status).toBe(200);
  });

  test.each(GUARDED)('%s %s without a token is 401 with WWW-Authenticate', async (method, url) => {
    await using frontend = testFrontend(secured());
    const answer = await frontend.send({ method, url });
    expect(answer).toMatchObject({
      status: 401,
      body: { code: 401, message: 'authentication failed: no token was sent' },
    });
    expect(answer.headers['www-authenticate']).toBe('Bearer');
  });

  test.each<[string, (jwt: string) => Record<string, string>]>([
    ['X-Auth', jwt => ({ 'x-auth': jwt })],
    ['Authorization: Bearer', jwt => ({ authorization: `Bearer ${jwt}` })],
    ['authorization: bearer', jwt => ({ authorization: `bearer  ${jwt}` })],
    ['the cookie iam_token', jwt => ({ cookie: `a=b; iam_token=${jwt}; c=d` })],
  ])('the header %s carries the token', async (_, headers) => {
    await using frontend = testFrontend(secured());
    expect((await frontend.send({ url: '/api/agent', headers: headers(await token()) })).status).toBe(200);
    expect(frontend.instances.queries[0]?.tenant).toBe('acme');
  });

  test('?token= counts on WebSocket upgrades only', async () => {
    await using frontend = testFrontend(secured());
    const url = `/api/agent?token=${await token()}`;
    expect((await frontend.send({ url })).status).toBe(401);
    const headers = { connection: 'upgrade', upgrade: 'websocket' };
    expect((await frontend.send({ url, headers })).status).toBe(200);
  });

  test('the first present carrier of a token decides, although a later one is valid', async () => {
    await using frontend = testFrontend(secured());
    const headers = { 'x-auth': 'nonsense', authorization: `Bearer ${await token()}` };
    expect((await frontend.send({ url: '/api/agent', headers })).status).toBe(401);
  });

  test('an invalid token is 401 with the reason and is never logged', async () => {
    await using frontend = testFrontend(secured());
    const bad = await token({ exp: 1 });
    const answer = await frontend.send({ url: '/api/agent', headers: { 'x-auth': bad } });
    expect(answer).toMatchObject({
      status: 401,
      body: { code: 401, message: 'authentication failed: the token has expired' },
    });
    expect(frontend.lines).toHaveLength(1);
    expect(JSON.stringify(frontend.lines)).not.toContain(bad.split('.')[2]);
  });

  test.each([
    ['viewer', 'GET', '/api/agent', 200],
    ['viewer', 'GET', '/metrics', 200],
    ['viewer', 'POST', '/api/agent/1/invoke', 403],
    ['viewer', 'POST', '/api/agent', 403],
    ['user', 'GET', '/api/agent', 200],
    ['user', 'POST', '/api/agent/1/invoke', 404],
    ['user', 'POST', '/api/agent', 403],
    ['user', 'DELETE', '/api/agent/1', 403],
    ['user', 'POST', '/api/agent/1/restart', 403],
    ['user', 'POST', '/api/agent/1/exec', 403],
    ['user', 'POST', '/api/agent/1/code', 403],
    ['developer', 'POST', '/api/agent/1/code', 404],
    ['developer', 'POST', '/api/agent', 400],
    ['developer', 'DELETE', '/api/agent/1', 404],
    ['admin', 'GET', '/api/agent', 403],
  ] as const)('role %s: %s %s is %d', async (role, method, url, status) => {
    await using frontend = testFrontend(secured());
    const answer = await frontend.send({ method, url, headers: { 'x-auth': await token({ role }) } });
    expect(answer.status).toBe(status);
    if (status === 403) expect(answer.body).toMatchObject({ code: 403, message: expect.stringContaining('role') });
  });

  test.each(['tenantId', 'X-Tenant-Id'])('a header %s that differs from the token is 403', async header => {
    await using frontend = testFrontend(secured());
    const auth = { 'x-auth': await token() };
    expect((await frontend.send({ url: '/api/agent', headers: { ...auth, [header]: 'other' } })).status).toBe(403);
    expect((await frontend.send({ url: '/api/agent', headers: { ...auth, [header]: 'acme' } })).status).toBe(200);
  });

  test.each([
    ['acme', undefined, 'acme'],
    ['ops', ['ops'], null],
    ['acme', ['ops'], 'acme'],
  ])('a token of %s sees with metrics.tenants %j the metrics of %j', async (sub, metricsTenants, seen) => {
    const rendered: (string | null)[] = [];
    await using frontend = testFrontend({
      ...secured(),
      ...(metricsTenants === undefined ? {} : { metricsTenants }),
      metrics: {
        observeRequest() {},
        uncaught() {},
        render: async tenant => {
          rendered.push(tenant);
          return { contentType: 'text/plain', body: '' };
        },
      },
    });
    await frontend.send({ url: '/metrics', headers: { 'x-auth': await token({ sub, role: 'developer' }) } });
    expect(rendered).toEqual([seen]);
  });

  test('a second request with a cached token is answered as the first', async () => {
    await using frontend = testFrontend(secured());
    const headers = { 'x-auth': await token({ role: 'viewer' }) };
    for (let round = 0; round < 2; round++) {
      expect((await frontend.send({ url: '/api/agent', headers })).status).toBe(200);
      expect((await frontend.send({ method: 'POST', url: '/api/agent', headers })).status).toBe(403);
    }
  });
});

describe('tenants', () => {
  test('the tenant header is trusted with authentication off, and its default is default', async () => {
    await using frontend = testFrontend();
    await frontend.send({ url: '/api/agent' });
    await frontend.send({ url: '/api/agent', headers: { tenantId: 'acme' } });
    await frontend.send({ url: '/api/agent', headers: { 'X-Tenant-Id': 'umbrella' } });
    expect(frontend.instances.queries.map(query => query.tenant)).toEqual(['default', 'acme', 'umbrella']);
  });

  test.each(['', '-x', 'a b', 'x'.repeat(65)])('a tenant header of "%s" is 400', async tenantId => {
    await using frontend = testFrontend();
    expect(await frontend.send({ url: '/api/agent', headers: { tenantId } })).toMatchObject({
      status: 400,
      body: { code: 400, message: expect.stringContaining('invalid tenant') },
    });
  });

  test.each<Record<string, string>>([{ tenantId: 'a b' }, { tenantId: 'a', 'X-Tenant-Id': 'b' }])(
    'health and readiness ignore the tenant header %j',
    async headers => {
      for (const options of [{}, secured()]) {
        await using frontend = testFrontend(options);
        for (const url of ['/healthz', '/readyz']) {
          expect(await frontend.send({ url, headers })).toMatchObject({ status: 200, body: { status: 'ok' } });
        }
      }
    },
  );
});

describe('bodies', () => {
  test('a create body above 1 MiB is 413', async () => {
    await using frontend = testFrontend();
    const limit = 1024 * 1024;
    const answers = await Promise.all(
      [limit, limit + 1].map(bytes => frontend.send({ method: 'POST', url: '/api/agent', payload: ' '.repeat(bytes) })),
    );
    expect(answers).toMatchObject([
      { status: 400 },
      { status: 413, body: { code: 413, message: `request body is larger than ${limit} bytes` } },
    ]);
  });

  test.each(['application/json', 'text/plain', 'nonsense', ';', 'application/json; charset=latin1', undefined])(
    'a create ignores the content type %s',
    async type => {
      await using frontend = testFrontend();
      const headers = type === undefined ? {} : { 'content-type': type };
      const answer = await frontend.send({ method: 'POST', url: '/api/agent', payload: '{"namespace":"n"}', headers });
      expect(answer).toMatchObject({ status: 400, body: { message: 'invalid request body: name is required' } });
    },
  );

  test('a caller of a body that is too large reads the 413 although it is still sending', async () => {
    await using frontend = testFrontend();
    const url = await frontend.listen();
    const answer = await fetch(`${url}/api/agent`, { method: 'POST', body: Buffer.alloc(8 * 1024 * 1024, 32) });
    expect(answer.status).toBe(413);
    expect(await answer.json()).toMatchObject({ code: 413 });
  });
});

describe('faults', () => {
  test('an unknown error is a plain 500, and the log has its cause and trace id', async () => {
    await using frontend = testFrontend();
    frontend.instances.get = () => Promise.reject(new TypeError('the cause of it'));
    const answer = await frontend.send({ url: '/api/agent/1', headers: { 'x-trace-id': 'trace-7' } });
    expect(answer).toMatchObject({ status: 500, body: { code: 500, message: expect.stringContaining('trace-7') } });
    expect(answer.text).not.toContain('the cause of it');
    expect(frontend.lines).toMatchObject([
      { level: 'error', fields: { traceId: 'trace-7', status: 500, err: { message: 'the cause of it' } } },
    ]);
  });

  test('bytes that are not HTTP are answered with an error in JSON', async () => {
    await using frontend = testFrontend();
    const { port } = new URL(await frontend.listen());
    const text = await new Promise<string>((resolve, reject) => {
      const socket = net.connect(Number(port), '127.0.0.1', () => socket.write('nonsense\r\n\r\n'));
      let received = '';
      socket.on('data', chunk => {
        received += chunk;
      });
      socket.on('close', () => resolve(received));
      socket.on('error', reject);
    });
    expect(text).toMatch(/^HTTP\/1.1 400 /);
    expect(text).toContain('{"code":400,"message":"the request is not valid HTTP"}');
  });
});

describe('the log of requests', () => {
  test('the log has no line for a successful request', async () => {
    await using frontend = testFrontend();
    await frontend.send({ url: '/api/agent' });
    expect(frontend.lines).toEqual([]);
  });

  test('the log has a line for a slow success', async () => {
    await using frontend = testFrontend({ slowMs: 0 });
    await frontend.send({ url: '/api/agent?name=x', headers: { tenantId: 'acme' } });
    expect(frontend.lines).toMatchObject([
      { level: 'warn', fields: { entry: 'frontend', method: 'GET', path: '/api/agent', status: 200, tenant: 'acme' } },
    ]);
  });

  test('the log has a line without the query for a failure', async () => {
    await using frontend = testFrontend();
    frontend.instances.list = () => Promise.reject(invalidRequest('no'));
    await frontend.send({ url: '/api/agent?token=abc' });
    expect(frontend.lines).toMatchObject([
      { level: 'info', fields: { status: 400, reason: 'no', path: '/api/agent' } },
    ]);
    expect(JSON.stringify(frontend.lines)).not.toContain('abc');
  });

  test('the log has at most 250 lines for a flood of 300 failures', async () => {
    await using frontend = testFrontend();
    await Promise.all(Array.from({ length: 300 }, () => frontend.send({ url: '/nowhere' })));
    expect(frontend.lines.length).toBeLessThanOrEqual(250);
    expect(frontend.requests).toHaveLength(300);
  });
});

test('a route that names no access is rejected', async () => {
  await using frontend = testFrontend();
  expect(() => frontend.app.get('/forgotten', async () => ({}))).toThrow('route GET /forgotten names no access');
});
