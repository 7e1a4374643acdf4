import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, test } from 'vitest';
import { type AddressBed, addressBed } from '../../../test/http/addresses-bed.ts';
import { Inside } from '../../../test/http/passthrough-bed.ts';
import { LIMITS } from '../../core/limits.ts';

const inside = new Inside();
afterEach(() => inside.close());

/** Starts a server that answers every request with `bytes`; returns its port. */
const answers = (bytes: string, goOn: (socket: Socket) => void = socket => socket.end()) =>
  inside.tcp(socket =>
    socket.once('data', () => {
      socket.write(bytes, 'latin1');
      goOn(socket);
    }),
  );

/** Header values that only the sandbox sends. The service sets some of the same headers itself. */
const OF_INSIDE = /\*|^\/|max-age|evil|etc|^1$|Basic|1000|Negotiate|forged/;

/** Sends bytes to the frontend and returns everything received until the frontend closes. */
async function raw(it: AddressBed, bytes: string): Promise<string> {
  const socket = net.connect(Number(it.port), '127.0.0.1');
  socket.write(bytes, 'latin1');
  return await text(socket);
}

const served = async () => inside.http((request, response) => void response.end(`served ${request.url}`));

describe('headers of a sandbox’s answer, by host', () => {
  test.each([
    ['Clear-Site-Data: "*"', 'clear-site-data'],
    ['Service-Worker-Allowed: /', 'service-worker-allowed'],
    ['Strict-Transport-Security: max-age=1; includeSubDomains', 'strict-transport-security'],
    ['Alt-Svc: h2="evil.example:443"', 'alt-svc'],
    ['X-Accel-Redirect: /etc/passwd', 'x-accel-redirect'],
    ['Connection: X-Own\r\nX-Own: 1', 'x-own'],
    ['Proxy-Authenticate: Basic', 'proxy-authenticate'],
    ['Keep-Alive: timeout=1000', 'keep-alive'],
    ['WWW-Authenticate: Negotiate', 'www-authenticate'],
    ['X-Trace-Id: forged', 'x-trace-id'],
  ])('the header %s of a sandbox does not pass by host', async (header, name) => {
    await using it = await addressBed();
    it.expose({ port: await answers(`HTTP/1.1 200 OK\r\nContent-Length: 2\r\n${header}\r\n\r\nok`), access: 'public' });
    const answer = await it.ask(it.host('hello--default'));
    expect(answer.status).toBe(200);
    expect(answer.headers[name] ?? '').not.toMatch(OF_INSIDE);
  });

  test.each([
    ['a=1; Domain=localhost', 'a=1'],
    ['a=1; domain = .apps.example.org; Path=/', 'a=1; Path=/'],
    ['a=1;DOMAIN;\tDomain=x;Secure', 'a=1;Secure'],
    ['domain=1; Path=/', 'domain=1; Path=/'],
    ['iam_token=stolen', undefined],
    ['a=1, iam_token=stolen', undefined],
    ['__Host-iam_token=stolen; Path=/', undefined],
    ['rookery_link=forged', undefined],
    [' rookery_link=forged; Path=/x', undefined],
  ])('the service removes Domain and its own names from the Set-Cookie %s of a sandbox', async (sent, got) => {
    await using it = await addressBed();
    const port = await answers(`HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: ${sent}\r\n\r\n`);
    it.expose({ port, access: 'public' });
    const { headers } = await it.ask(it.host('hello--default'));
    expect(headers['set-cookie']?.[0]).toBe(got);
  });

  test.each([
    ['a head that is too large', `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(LIMITS.passHeadBytes)}\r\n\r\n`],
    ['too many headers', `HTTP/1.1 200 OK\r\n${'a:\r\n'.repeat(LIMITS.passHeaders + 1)}\r\n`],
    [
      'another protocol that the client did not request',
      'HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: own\r\n\r\n',
    ],
    ['a length and chunks', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok'],
    ['no HTTP', 'SSH-2.0-OpenSSH\r\n'],
  ])('the service answers 502 to %s from a sandbox, and serves the next request', async (_what, bytes) => {
    await using it = await addressBed();
    it.expose({ port: await answers(bytes), access: 'public' });
    it.expose({ port: await served(), access: 'public' }, { name: 'other' });
    expect((await it.ask(it.host('hello--default'))).status).toBe(502);
    expect((await it.ask(it.host('other--default'))).status).toBe(200);
  });

  test('the service answers 502 when a sandbox upgrades to a protocol that the client did not request', async () => {
    await using it = await addressBed();
    const bytes = 'HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n';
    it.expose({ port: await answers(bytes), access: 'public' });
    const head = `GET / HTTP/1.1\r\nHost: ${it.host('hello--default')}\r\nConnection: Upgrade\r\nUpgrade: own\r\n\r\n`;
    expect(await raw(it, head)).toMatch(/^HTTP\/1\.1 502 /);
  });
});

describe('the host name of a request', () => {
  test.each([
    ['with the port', (it: AddressBed) => it.host('hello--default')],
    ['without a port', () => 'hello--default.localhost'],
    ['with another port, as behind a proxy', () => 'hello--default.localhost:443'],
    ['in capitals', () => 'Hello--DEFAULT.LocalHost'],
  ])('a request selects an agent by the host name %s', async (_what, host) => {
    await using it = await addressBed();
    it.expose({ port: await served(), access: 'public' });
    expect((await it.ask(host(it), '/healthz')).text).toBe('served /healthz');
  });

  test.each([
    'hello--default.localhost.',
    'hello--default.localhost:',
    'hello--default.localhost:x',
    'hello--default.localhost:999999',
    'hello--default.localhost@evil.example',
    'hello--default.localhost.evil.example',
    'hello--default.localhost:80@evil.example',
    'a.hello--default.localhost',
    'hello--default..localhost',
    'hello---default.localhost',
    '-hello--default.localhost',
    'hello--default--default.localhost',
    'hello--default',
    'hello--default.evil.example',
    'xn--default.localhost',
    'hello.localhost',
    '[hello--default.localhost]',
    'hello--default.localhost/',
    'hello--default.localhost, localhost',
  ])('the Host %s reaches neither a sandbox nor the service', async host => {
    await using it = await addressBed();
    it.expose({ port: await served(), access: 'public' });
    for (const path of ['/', '/api/agent']) {
      const answer = await raw(it, `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
      expect(answer).toMatch(/^HTTP\/1\.1 4(21|00) /);
    }
  });

  test('the service answers no request that names an address', async () => {
    await using it = await addressBed();
    const host = it.host('hello--default');
    const id = it.expose(null);
    for (const [method, path] of [
      ['GET', '/api/agent'],
      ['GET', '/healthz'],
      ['GET', '/metrics'],
      ['POST', `/api/agent/${id}/invoke`],
      ['DELETE', `/api/agent/${id}`],
      ['GET', '/'],
    ] as const) {
      const answer = await it.ask(host, path, {
        method,
        headers: { Accept: 'text/html' },
        ...(method === 'POST' && { body: '{}' }),
      });
      expect([answer.status, answer.message]).toEqual([404, `there is nothing at ${host}`]);
    }
    expect(it.instances.calls).toEqual([]);
  });

  test('the internal route of addresses is unknown to clients', async () => {
    await using it = await addressBed();
    it.expose({ port: await served(), access: 'public' });
    expect(await it.ask('localhost', '/.address')).toMatchObject({
      status: 404,
      message: 'route not found: GET /.address',
    });
  });

  test.each([
    ['two hosts', 'Host: hello--default.localhost\r\nHost: other--default.localhost'],
    ['an address and the service', 'Host: hello--default.localhost\r\nHost: localhost'],
  ])('requests with %s are refused', async (_what, hosts) => {
    await using it = await addressBed();
    it.expose({ port: await served(), access: 'public' });
    expect(await raw(it, `GET / HTTP/1.1\r\n${hosts}\r\nConnection: close\r\n\r\n`)).toMatch(/^HTTP\/1\.1 400 /);
  });

  test('a request with the Host of the service and then an address does not reach the sandbox', async () => {
    await using it = await addressBed();
    it.expose({ port: await served(), access: 'public' });
    const hosts = 'Host: localhost\r\nHost: hello--default.localhost';
    expect(await raw(it, `GET /healthz HTTP/1.1\r\n${hosts}\r\nConnection: close\r\n\r\n`)).not.toContain('served');
  });

  test.each([
    ['http://hello--default.localhost/a?b', 200, 'served /a?b'],
    ['HTTP://HELLO--default.localhost', 200, 'served /'],
    ['http://localhost/api/agent', 400, 'the request is for another host than its Host'],
    ['http://other--default.localhost/', 400, 'another host'],
    ['http://hello--default.localhost@localhost/', 400, 'another host'],
    ['ftp://hello--default.localhost/', 400, 'another host'],
  ])('a request line with the absolute form %s', async (url, status, said) => {
    await using it = await addressBed();
    it.expose({ port: await served(), access: 'public' });
    const answer = await raw(it, `GET ${url} HTTP/1.1\r\nHost: hello--default.localhost\r\nConnection: close\r\n\r\n`);
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(answer).toContain(said);
  });

  test('an absolute form that names an address reaches no sandbox under the service’s Host', async () => {
    await using it = await addressBed();
    it.expose({ port: await served(), access: 'public' });
    const answer = await raw(
      it,
      'GET http://hello--default.localhost/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
    );
    expect(answer).not.toContain('served');
  });

  test('each request of a connection goes where its own Host says', async () => {
    await using it = await addressBed();
    it.expose({ port: await served(), access: 'public' });
    const one = (host: string, more = '') => `GET /healthz HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;
    const answer = await raw(
      it,
      one('hello--default.localhost') + one('localhost') + one('hello--default.localhost', 'Connection: close\r\n'),
    );
    expect(answer.match(/served \/healthz|"status":"ok"/g)).toEqual([
      'served /healthz',
      '"status":"ok"',
      'served /healthz',
    ]);
  });
});

describe('a page of an address cannot act as one of the service', () => {
  test('changes and WebSockets from a page of an address are refused by the API', async () => {
    await using it = await addressBed();
    const id = it.expose({ port: await served(), access: 'public' });
    const page = `http://${it.host('hello--default')}`;
    const here = `localhost:${it.port}`;
    for (const [method, path] of [
      ['POST', `/api/agent/${id}/invoke`],
      ['DELETE', `/api/agent/${id}`],
      ['POST', `/api/agent/${id}/link`],
      ['POST', '/api/session'],
    ] as const) {
      expect((await it.ask(here, path, { method, headers: { Origin: page } })).status).toBe(403);
    }
    const socket = net.connect(Number(it.port), '127.0.0.1');
    socket.write(
      `GET /api/agent/${id}/terminal HTTP/1.1\r\nHost: ${here}\r\nOrigin: ${page}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\n\r\n`,
    );
    const [begin] = (await once(socket, 'data')) as [Buffer];
    expect(begin.toString()).toMatch(/^HTTP\/1\.1 403 /);
    socket.destroy();
  });

  test('a page of another site changes nothing at an address with access token when authentication is off', async () => {
    await using it = await addressBed();
    it.expose({ port: await served(), access: 'token' });
    const host = it.host('hello--default');
    const status = async (headers: Record<string, string>, method: string) =>
      (await it.ask(host, '/', { method, headers })).status;
    expect(await status({}, 'POST')).toBe(200);
    expect(await status({ Origin: `http://${host}` }, 'POST')).toBe(200);
    expect(await status({ Origin: 'http://evil.example' }, 'POST')).toBe(403);
    expect(await status({ 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'no-cors' }, 'GET')).toBe(403);
  });
});
