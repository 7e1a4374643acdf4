import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, test } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { type AddressBed, addressBed } from '../../../test/http/addresses-bed.ts';
import { Inside } from '../../../test/http/passthrough-bed.ts';
import { unauthenticated } from '../../core/error.ts';
import type { Identity } from '../../http/access/credentials.ts';
import { OWN_PATHS } from './addresses.ts';

const inside = new Inside();
afterEach(() => inside.close());

const IDENTITIES: Readonly<Record<string, Identity>> = {
  'developer-of-default': { tenant: 'default', role: 'developer' },
  'user-of-default': { tenant: 'default', role: 'user' },
  'viewer-of-default': { tenant: 'default', role: 'viewer' },
  'developer-of-acme': { tenant: 'acme', role: 'developer' },
};
const auth = {
  known: (token: string) => IDENTITIES[token],
  verify: () => Promise.reject(unauthenticated('authentication failed: unknown')),
};

/** Starts a server in the sandbox that answers with the request as JSON. */
const echo = () =>
  inside.http(async (request, response) => {
    const { method, url, headers } = request;
    response.end(JSON.stringify({ method, url, headers, body: await text(request) }));
  });

const said = (answer: { text: string }) =>
  JSON.parse(answer.text) as {
    method: string;
    url: string;
    headers: IncomingMessage['headers'];
    body: string;
  };

describe('addresses by host', () => {
  test('an agent receives every path and method of its host name', async () => {
    await using it = await addressBed();
    it.expose({ port: await echo(), access: 'public' });
    const host = it.host('hello--default');
    for (const path of [
      '/',
      '/a%2Fb//c/../%7E?x=1&instance=2&port=3&token=4',
      '/healthz',
      '/api/agent',
      '/%zz',
      '/.address',
    ]) {
      const answer = await it.ask(host, path, { method: 'POST', body: 'b' });
      expect([answer.status, said(answer)]).toMatchObject([200, { method: 'POST', url: path, body: 'b' }]);
    }
    for (const method of ['PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND']) {
      expect(said(await it.ask(host, '/api/agent/1/invoke', { method }))).toMatchObject({ method });
    }
    expect(it.requests.every(({ route }) => route === '(address)')).toBe(true);
  });

  test('the server inside gets the caller, host and scheme from the service, not from the caller’s headers', async () => {
    await using it = await addressBed();
    it.expose({ port: await echo(), access: 'public' });
    const host = it.host('hello--default');
    const headers = {
      'X-Forwarded-For': '10.9.8.7',
      'X-Forwarded-Host': 'evil.example',
      'X-Forwarded-Proto': 'https',
      'X-Forwarded-Prefix': '/evil',
      'X-Forwarded-Port': '1',
      Forwarded: 'host=evil.example',
      'X-Real-IP': '1.2.3.4',
    };
    const { headers: seen } = said(await it.ask(host, '/', { headers }));
    expect(seen).toMatchObject({
      host,
      'x-forwarded-for': '10.9.8.7, 127.0.0.1',
      'x-forwarded-host': host,
      'x-forwarded-proto': 'https',
    });
    for (const name of ['forwarded', 'x-real-ip', 'x-forwarded-prefix', 'x-forwarded-port'])
      expect(seen[name]).toBeUndefined();
  });

  test('redirects, cookies and headers of a server in a sandbox pass unchanged by host', async () => {
    await using it = await addressBed();
    const port = await inside.http((_request, response) => {
      response.writeHead(302, { Location: '/login', 'Set-Cookie': ['a=1; Path=/; HttpOnly', 'b=2; Secure'] }).end();
    });
    it.expose({ port, access: 'public' });
    const { status, headers } = await it.ask(it.host('hello--default'));
    expect([status, headers.location, headers['set-cookie']]).toEqual([
      302,
      '/login',
      ['a=1; Path=/; HttpOnly', 'b=2; Secure'],
    ]);
    expect(headers['content-security-policy']).toBeUndefined();
  });

  test('an answer by host is streamed as it arrives', async () => {
    await using it = await addressBed();
    const port = await inside.http((_request, response) => void response.write('first'));
    it.expose({ port, access: 'public' });
    const request = http.get({
      host: '127.0.0.1',
      port: it.port,
      headers: { Host: it.host('hello--default') },
      agent: false,
    });
    const [answer] = await once(request, 'response');
    const [chunk] = await once(answer, 'data');
    expect(String(chunk)).toBe('first');
    request.on('error', () => undefined).destroy();
  });

  test('a WebSocket by host exchanges messages with a server in the sandbox', async () => {
    await using it = await addressBed();
    const server = http.createServer();
    const sockets = new WebSocketServer({ server });
    sockets.on('connection', (socket, request) => socket.on('message', data => socket.send(`${request.url} ${data}`)));
    it.expose({ port: await inside.listen(server), access: 'public' });
    const socket = new WebSocket(`ws://127.0.0.1:${it.port}/chat?token=own`, {
      headers: { Host: it.host('hello--default') },
    });
    await once(socket, 'open');
    socket.send('hello');
    const [data] = await once(socket, 'message');
    expect(String(data)).toBe('/chat?token=own hello');
    socket.close();
    await once(socket, 'close');
    sockets.close();
  });

  test('namespaces and tenants are parts of the name', async () => {
    await using it = await addressBed();
    const one = await inside.http((_request, response) => void response.end('one'));
    const two = await inside.http((_request, response) => void response.end('two'));
    it.expose({ port: one, access: 'public' }, { namespace: 'demo' });
    it.expose({ port: two, access: 'public' }, { namespace: 'demo', tenant: 'acme' });
    expect((await it.ask(it.host('hello--demo'))).text).toBe('one');
    expect((await it.ask(it.host('hello--demo--acme'))).text).toBe('two');
    expect((await it.ask(it.host('hello--default'))).status).toBe(404);
  });

  test('an agent that is not exposed answers 404', async () => {
    await using it = await addressBed();
    it.expose(null);
    expect(await it.ask(it.host('hello--default'))).toMatchObject({
      status: 404,
      message: `there is nothing at ${it.host('hello--default')}`,
    });
    expect((await it.ask(it.host('other--default'), '/api/agent')).status).toBe(404);
  });

  test('an address answers 502 when no program listens on the port', async () => {
    await using it = await addressBed();
    const port = await echo();
    await inside.close();
    it.expose({ port, access: 'public' });
    expect((await it.ask(it.host('hello--default'))).status).toBe(502);
  });
});

describe('access by host with authentication on', () => {
  const access = async (it: AddressBed, headers: Record<string, string>) =>
    (await it.ask(it.host('hello--default'), '/', { headers })).status;

  test.each([
    ['X-Auth', { 'X-Auth': 'user-of-default' }, 200],
    ['a bearer', { Authorization: 'Bearer developer-of-default' }, 200],
    ['no token', {}, 401],
    ['a wrong token', { 'X-Auth': 'wrong' }, 401],
    ['a role that may not call', { 'X-Auth': 'viewer-of-default' }, 403],
    ['the token of another tenant', { 'X-Auth': 'developer-of-acme' }, 404],
    [
      'a cookie with a token, which a page of that host could have set',
      { Cookie: 'iam_token=developer-of-default' },
      401,
    ],
  ] as [string, Record<string, string>, number][])(
    'access "token" decides about a request with %s',
    async (_who, headers, status) => {
      await using it = await addressBed({ auth });
      it.expose({ port: await echo(), access: 'token' });
      expect(await access(it, headers)).toBe(status);
    },
  );

  test('an address with access "public" admits all callers and passes the application’s own Authorization', async () => {
    await using it = await addressBed({ auth });
    it.expose({ port: await echo(), access: 'public' });
    const answer = await it.ask(it.host('hello--default'), '/', { headers: { Authorization: 'Bearer own' } });
    expect(said(answer).headers.authorization).toBe('Bearer own');
  });

  test('a token of the platform does not reach the sandbox, whatever the access', async () => {
    await using it = await addressBed({ auth });
    it.expose({ port: await echo(), access: 'public' });
    const token = 'developer-of-default';
    const headers = {
      Authorization: `Bearer ${token}`,
      'X-Auth': token,
      Cookie: `a=1; iam_token=${token}`,
      Referer: `http://x/?t=${token}`,
    };
    const answer = await it.ask(it.host('hello--default'), `/?a=1&token=${token}`, { headers });
    expect(answer.text).not.toContain(token);
    expect(said(answer)).toMatchObject({ url: '/?a=1', headers: { cookie: 'a=1' } });
  });

  test.each([
    ['encoded', (token: string) => `t=${token.replaceAll('-', '%2D')}`],
    ['encoded beside an invalid escape', (token: string) => `%zz=${token.replace('d', '%64')}%`],
    ['in the name of a parameter', (token: string) => token.replace('d', '%64')],
  ])('a sandbox does not receive a token that is %s in the query', async (_how, written) => {
    await using it = await addressBed({ auth });
    it.expose({ port: await echo(), access: 'public' });
    const token = 'developer-of-default';
    for (const [host, path] of [
      [it.host('hello--default'), '/'],
      ['localhost', '/default/hello/'],
    ] as const) {
      const answer = await it.ask(host, `${path}?a=1&${written(token)}`, { headers: { 'X-Auth': token } });
      expect(said(answer).url).toBe('/?a=1');
    }
  });

  test.each([
    ['another name', '%74oken=developer%2Dof-default'],
    ['a second parameter', 'token=developer-of-default&token=user%2Dof-default'],
  ])('a sandbox does not receive the token of an upgrade that the query has under %s', async (_how, query) => {
    await using it = await addressBed({ auth });
    const seen: (string | undefined)[] = [];
    const outer = http.createServer().on('upgrade', (request, socket) => {
      seen.push(request.url);
      socket.end('HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n');
    });
    it.expose({ port: await inside.listen(outer), access: 'token' });
    const headers = { Connection: 'Upgrade', Upgrade: 'websocket' };
    for (const [host, path] of [
      [it.host('hello--default'), '/'],
      ['localhost', '/default/hello/'],
    ] as const) {
      expect((await it.ask(host, `${path}?a=1&${query}`, { headers })).status).toBe(403);
    }
    expect(seen).toEqual(['/?a=1', '/?a=1']);
  });

  describe('a request with more tokens than allowed', () => {
    const asked: string[] = [];
    const counting = {
      known: auth.known,
      verify: (token: string) => {
        asked.push(token);
        return auth.verify();
      },
    };
    const upgrade = { Connection: 'Upgrade', Upgrade: 'websocket', 'X-Auth': 'developer-of-default' };
    const query = (count: number) => Array.from({ length: count }, (_, at) => `token=t${at}&token=t${at}`).join('&');

    test.each([
      ['by host', 'token'],
      ['by path', 'token'],
      ['by host', 'public'],
      ['by path', 'public'],
    ] as const)(
      'a request %s with more than 4 tokens is refused before any is verified, access %s',
      async (how, access) => {
        await using it = await addressBed({ auth: counting });
        const outer = http.createServer().on('upgrade', (_request, socket) => {
          socket.end('HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n');
        });
        it.expose({ port: await inside.listen(outer), access });
        const [host, path] = how === 'by host' ? [it.host('hello--default'), '/'] : ['localhost', '/default/hello/'];
        asked.length = 0;
        const refused = await it.ask(host, `${path}?${query(4)}`, { headers: upgrade });
        expect([refused.status, refused.message, asked]).toEqual([
          400,
          'the request carries 5 tokens in X-Auth, Authorization and the query, at most 4 are allowed',
          [],
        ]);
        expect((await it.ask(host, `${path}?${query(3)}`, { headers: upgrade })).status).toBe(403);
        expect(asked).toEqual(['t0', 't1', 't2']);
      },
    );
  });

  test('an agent that exists and one that does not look the same to strangers', async () => {
    await using it = await addressBed({ auth });
    it.expose({ port: 1, access: 'token' });
    const [there, missing] = [await it.ask(it.host('hello--default')), await it.ask(it.host('other--default'))];
    expect([there.status, there.message]).toEqual([missing.status, missing.message]);
  });
});

describe('a signed link', () => {
  async function linked(it: AddressBed, id: string, body?: object) {
    const answer = await it.ask(`127.0.0.1:${it.port}`, `/api/agent/${id}/link`, {
      method: 'POST',
      headers: { 'X-Auth': 'developer-of-default' },
      ...(body && { body: JSON.stringify(body) }),
    });
    return {
      status: answer.status,
      ...(JSON.parse(answer.text) as { url: string; expires_at: string; message?: string }),
    };
  }

  test('a signed link sets a cookie of its host at the first visit, and redirects to the same address without the link', async () => {
    await using it = await addressBed({ auth });
    const id = it.expose({ port: await echo(), access: 'link' });
    const { url } = await linked(it, id);
    expect(url).toMatch(new RegExp(`^http://hello--default.localhost:${it.port}/\\?rookery_link=`));
    const host = it.host('hello--default');
    const query = new URL(url).search;
    const visit = await it.ask(host, `//a/b${query}&x=1`);
    expect([visit.status, visit.headers.location]).toEqual([303, '/a/b?x=1']);
    const cookie = String(visit.headers['set-cookie']);
    const [, maxAge] = /^rookery_link=[^;]+; Path=\/; Max-Age=(\d+); HttpOnly; SameSite=Lax$/.exec(cookie) ?? [];
    // The rest of an hour: seconds have passed since the link was made.
    expect(Number(maxAge)).toBeGreaterThan(3000);
    expect(Number(maxAge)).toBeLessThanOrEqual(3600);
    expect(visit.headers['referrer-policy']).toBe('no-referrer');
    const own = cookie.split(';')[0] as string;
    const answer = await it.ask(host, '/a', { headers: { Cookie: `rookery_link=tossed; a=1; ${own}` } });
    expect([answer.status, said(answer).headers.cookie]).toEqual([200, 'a=1']);
    // The name of the parameter may contain percent escapes.
    const escaped = await it.ask(host, `/${query.replace('rookery', 'r%6Fokery')}&x=1`);
    expect([escaped.status, escaped.headers.location]).toEqual([303, '/?x=1']);
    const second = await it.ask(host, `/?%72ookery_link=tossed&x=1`, { headers: { Cookie: own } });
    expect(said(second).url).toBe('/?x=1');
    // A proxy in front of the service terminates TLS.
    const secure = await it.ask(host, `/${query}`, { headers: { 'X-Forwarded-Proto': 'https' } });
    expect(String(secure.headers['set-cookie'])).toMatch(/; Secure$/);
  });

  test.each([
    ['the text of a link', (link: string) => ({ Cookie: `rookery_link=${link}` })],
    ['another signature', (link: string) => ({ Cookie: `rookery_link=${link.slice(0, -3)}abc` })],
    ['none', () => ({ Cookie: 'rookery_link=' })],
    ['a later expiry', (link: string) => ({ Cookie: `rookery_link=zzzzzz.${link.split('.')[1]}` })],
  ])('a wrong link cookie is 401: %s', async (_what, headers) => {
    await using it = await addressBed({ auth });
    const id = it.expose({ port: await echo(), access: 'link' });
    const link = new URL((await linked(it, id)).url).searchParams.get('rookery_link') as string;
    expect((await it.ask(it.host('hello--default'), '/', { headers: headers(link) })).status).toBe(401);
  });

  test('a signed link opens no other agent, no new agent of the same name and no other method', async () => {
    await using it = await addressBed({ auth });
    const port = await echo();
    const id = it.expose({ port, access: 'link' });
    it.expose({ port, access: 'link' }, { name: 'other' });
    const { search } = new URL((await linked(it, id)).url);
    const own = String((await it.ask(it.host('hello--default'), `/${search}`)).headers['set-cookie']).split(
      ';',
    )[0] as string;
    expect((await it.ask(it.host('other--default'), `/${search}`)).status).toBe(401);
    expect((await it.ask(it.host('other--default'), '/', { headers: { Cookie: own } })).status).toBe(401);
    expect((await it.ask(it.host('hello--default'), `/${search}`, { method: 'POST' })).status).toBe(401);
    await it.instances.delete('default', id, null);
    it.expose({ port, access: 'link' });
    expect((await it.ask(it.host('hello--default'), `/${search}`)).status).toBe(401);
    expect((await it.ask(it.host('hello--default'), '/', { headers: { Cookie: own } })).status).toBe(401);
  });

  test('a developer of its tenant makes a signed link for a bounded time when the agent allows links', async () => {
    await using it = await addressBed({ auth });
    const id = it.expose({ port: 1, access: 'link' });
    expect(await linked(it, it.expose({ port: 1, access: 'token' }, { name: 'other' }))).toMatchObject({
      status: 409,
      message: 'agent default/other is not exposed with "access": "link"',
    });
    expect((await linked(it, id, { expires_seconds: 604_801 })).status).toBe(400);
    expect((await linked(it, id, { expires_seconds: 60 })).status).toBe(200);
    for (const [token, status] of [
      ['user-of-default', 403],
      ['developer-of-acme', 404],
    ] as const) {
      const headers = { 'X-Auth': token };
      expect((await it.ask('localhost', `/api/agent/${id}/link`, { method: 'POST', headers })).status).toBe(status);
    }
  });

  test('a link cookie gives no rights to pages of other origins', async () => {
    await using it = await addressBed({ auth });
    const id = it.expose({ port: await echo(), access: 'link' });
    const host = it.host('hello--default');
    const { search } = new URL((await linked(it, id)).url);
    const Cookie = String((await it.ask(host, `/${search}`)).headers['set-cookie']).split(';')[0] as string;
    const by = async (headers: Record<string, string>, method = 'GET') =>
      (await it.ask(host, '/', { method, headers: { Cookie, ...headers } })).status;
    expect(await by({ Origin: `http://${host}`, 'Sec-Fetch-Site': 'same-origin' }, 'POST')).toBe(200);
    expect(await by({ Origin: `http://${it.host('other--default')}` }, 'POST')).toBe(403);
    expect(await by({ Origin: 'null' }, 'POST')).toBe(403);
    expect(await by({ 'Sec-Fetch-Site': 'same-site', 'Sec-Fetch-Mode': 'no-cors', 'Sec-Fetch-Dest': 'script' })).toBe(
      403,
    );
    expect(await by({ 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'iframe' })).toBe(
      403,
    );
    expect(
      await by({ 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'document' }),
    ).toBe(200);
    const socket = new WebSocket(`ws://127.0.0.1:${it.port}/`, {
      headers: { Host: host, Cookie, Origin: 'http://evil.example' },
    });
    const [, answer] = (await once(socket, 'unexpected-response')) as [unknown, IncomingMessage];
    expect(answer.statusCode).toBe(403);
    answer.resume();
  });
});

describe('addresses by path', () => {
  test('a server receives the path after the tenant and the name', async () => {
    await using it = await addressBed();
    it.expose({ port: await echo(), access: 'public' });
    it.expose({ port: await echo(), access: 'public' }, { namespace: 'demo', tenant: 'Acme.1' });
    const first = said(await it.ask('localhost', '/default/hello/a%2Fb?x=1', { method: 'POST', body: 'b' }));
    expect(first).toMatchObject({
      method: 'POST',
      url: '/a%2Fb?x=1',
      body: 'b',
      headers: { 'x-forwarded-prefix': '/default/hello' },
    });
    expect(said(await it.ask('localhost', '/Acme.1/hello--demo/')).url).toBe('/');
    const bare = await it.ask('localhost', '/default/hello?x=1');
    expect([bare.status, bare.headers.location]).toEqual([308, '/default/hello/?x=1']);
  });

  test('redirects of a server by path stay below the path of its agent', async () => {
    await using it = await addressBed();
    let location = '';
    const port = await inside.http((_request, response) => void response.writeHead(302, { Location: location }).end());
    it.expose({ port, access: 'public' });
    for (const [sent, got] of [
      ['/login?a', '/default/hello/login?a'],
      ['login', 'login'],
      ['http://localhost/login', '/default/hello/login'],
      ['HTTP://LOCALHOST', '/default/hello/'],
      ['https://elsewhere.example/x', 'https://elsewhere.example/x'],
      ['//elsewhere.example/x', '//elsewhere.example/x'],
    ] as const) {
      location = sent;
      expect((await it.ask('localhost', '/default/hello/')).headers.location).toBe(got);
    }
  });

  test('a page by path is sandboxed and exchanges no cookies, because it shares the service’s origin', async () => {
    await using it = await addressBed();
    const port = await inside.http((request, response) => {
      const csp = 'sandbox allow-same-origin allow-scripts';
      response.writeHead(200, { 'Set-Cookie': ['a=1; Path=/', 'b=2'], 'Content-Security-Policy': csp });
      response.end(request.headers.cookie ?? 'none');
    });
    it.expose({ port, access: 'public' });
    const answer = await it.ask('localhost', '/default/hello/', { headers: { Cookie: 'iam_token=t; other=1' } });
    expect([answer.text, answer.headers['set-cookie']]).toEqual(['none', undefined]);
    expect(answer.headers['content-security-policy']).toMatch(/(^|, )sandbox allow-scripts allow-forms/);
    const worker = await it.ask('localhost', '/default/hello/sw.js', { headers: { 'Service-Worker': 'script' } });
    expect(worker.status).toBe(403);
  });

  test('an address by path requires a token, except when it is public', async () => {
    await using it = await addressBed({ auth });
    const port = await echo();
    it.expose({ port, access: 'link' });
    it.expose({ port, access: 'public' }, { name: 'open' });
    const status = async (path: string, headers: Record<string, string> = {}, method = 'GET') =>
      (await it.ask('localhost', path, { headers, method })).status;
    expect(await status('/default/hello/')).toBe(401);
    expect(await status('/default/hello/', { 'X-Auth': 'user-of-default' })).toBe(200);
    expect(await status('/default/hello/', { 'X-Auth': 'viewer-of-default' })).toBe(403);
    expect(await status('/default/hello/', { 'X-Auth': 'developer-of-acme' })).toBe(404);
    expect(
      await status('/default/hello/', { 'X-Auth': 'user-of-default', Origin: 'http://evil.example' }, 'POST'),
    ).toBe(403);
    expect(await status('/default/open/', { Origin: 'null', 'Sec-Fetch-Site': 'cross-site' }, 'POST')).toBe(200);
    expect((await it.ask('evil.example', '/default/open/')).status).toBe(421);
  });

  test('a path that names no address is an unknown route', async () => {
    await using it = await addressBed();
    it.expose({ port: await echo(), access: 'public' });
    it.expose({ port: await echo(), access: 'public' }, { tenant: 'api' });
    for (const path of [
      '/default/other/',
      '/a/b',
      '/x/y/z',
      '/api/hello/',
      '/serverless/v1/none',
      '/default/hello%20/',
      '/d%65fault/hello/',
      '/default/Hello/',
    ]) {
      expect(await it.ask('localhost', path, { method: 'POST', body: '{}' })).toMatchObject({
        status: 404,
        message: `route not found: POST ${path}`,
      });
    }
    expect(it.requests.map(({ route }) => route)).toEqual(Array(8).fill(''));
  });

  test('a path without an agent is answered 401 without a token when authentication is on', async () => {
    await using it = await addressBed({ auth });
    expect((await it.ask('localhost', '/default/other/')).status).toBe(401);
  });

  test('no tenant has an address among the paths of the service', async () => {
    await using it = await addressBed();
    const { paths } = JSON.parse((await it.ask('localhost', '/openapi.json')).text) as { paths: object };
    for (const path of Object.keys(paths)) expect(OWN_PATHS).toContain(path.split('/')[1]);
  });
});

describe('the record of an agent', () => {
  test('the record of an agent has an address only when the create exposed a port', async () => {
    await using it = await addressBed();
    const body = { namespace: 'demo', runtime_spec: { runtime: 'python3.11', rootfs: { imageurl: 'x' } } };
    const make = async (name: string, more: object) => {
      const sent = JSON.stringify({ ...body, name, ...more });
      const made = JSON.parse((await it.ask('localhost', '/api/agent', { method: 'POST', body: sent })).text);
      return JSON.parse((await it.ask(`localhost:${it.port}`, `/api/agent/${made.instance_id}`)).text).instance;
    };
    expect(await make('plain', {})).not.toHaveProperty('expose');
    expect(await make('null', { expose: null })).not.toHaveProperty('expose');
    expect((await make('shown', { expose: { port: 8000 } })).expose).toEqual({
      port: 8000,
      access: 'token',
      address: `http://shown--demo.localhost:${it.port}/`,
      path: '/default/shown--demo/',
    });
  });

  test.each([
    [{ port: 0 }, 'invalid request body: expose.port must be between 1 and 65535, got 0'],
    [
      { port: 80, access: 'all' },
      'invalid request body: expose.access must be one of "token", "link", "public", got "all"',
    ],
    [{}, 'invalid request body: expose.port is required'],
    [8000, 'invalid request body: expose must be an object'],
  ])('a create with expose %o is refused with a message that names the field', async (expose, message) => {
    await using it = await addressBed();
    const runtime_spec = { runtime: 'python3.11', rootfs: { imageurl: 'x' } };
    const body = JSON.stringify({ namespace: 'demo', name: 'a', runtime_spec, expose });
    expect(await it.ask('localhost', '/api/agent', { method: 'POST', body })).toMatchObject({ status: 400, message });
  });

  test('a create with a port is refused when the name cannot be part of a host name, and accepted without the port', async () => {
    await using it = await addressBed();
    const create = (more: object) => {
      const runtime_spec = { runtime: 'python3.11', rootfs: { imageurl: 'x' } };
      return it.ask('localhost', '/api/agent', {
        method: 'POST',
        body: JSON.stringify({ namespace: 'demo', name: 'My agent', runtime_spec, ...more }),
      });
    };
    expect(await create({ expose: { port: 80 } })).toMatchObject({
      status: 400,
      message:
        'invalid request body: expose: agent demo/My agent can have no address: its name must have lower-case letters, digits and single "-" in between, got "My agent"',
    });
    expect((await create({})).status).toBe(200);
  });
});
