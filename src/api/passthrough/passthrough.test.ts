import { once } from 'node:events';
import http, { type IncomingMessage, type Server } from 'node:http';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { WebSocketServer } from 'ws';
import { deferred } from '../../../test/http/deferred.ts';
import { HostAccess } from '../../../test/http/host-access.ts';
import { AGENT, at, type Bed, bed, Inside, raw, tunnel } from '../../../test/http/passthrough-bed.ts';
import { Caller, refusedHandshake } from '../../../test/http/web-socket.ts';
import { LIMITS } from '../../core/limits.ts';

const inner = new Inside();
const { servers, http: inside, tcp: insideTcp } = inner;
const listening = (server: Server) => inner.listen(server);

afterEach(() => inner.close());

function headersOf({ rawHeaders }: IncomingMessage): Record<string, string> {
  const found: Record<string, string> = {};
  for (let index = 0; index < rawHeaders.length; index += 2) {
    found[rawHeaders[index] as string] = rawHeaders[index + 1] as string;
  }
  return found;
}

describe('a request to a port', () => {
  test('method, path, query, headers and body of a request arrive unchanged in the sandbox', async () => {
    await using it = await bed();
    const seen = deferred<{ request: IncomingMessage; body: string }>();
    const port = await inside(async (request, response) => {
      seen.resolve({ request, body: await text(request) });
      response.end();
    });
    await fetch(it.url + at(port, '/a%2Fb//c/../%7E', '&x=1&x=%20&y&token=secret'), {
      method: 'PUT',
      body: 'hällo',
      headers: { 'X-Own': 'one', 'Content-Type': 'not a media type' },
    });
    const { request, body } = await seen.promise;
    expect(request.method).toBe('PUT');
    expect(body).toBe('hällo');
    expect(request.headers).toMatchObject({
      'x-own': 'one',
      'content-type': 'not a media type',
      'content-length': '6',
      host: new URL(it.url).host,
      connection: 'close',
    });
  });

  test('the path is passed on unchanged, without the platform’s parameters in its query', async () => {
    await using it = await bed();
    const urls: string[] = [];
    const port = await inside((request, response) => {
      urls.push(request.url ?? '');
      response.end();
    });
    const ask = async (path: string, query: string) => {
      const head = `GET /serverless/v1/http${path}?${query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`;
      await raw(it, head);
      return urls.pop();
    };
    const own = `instance=${AGENT.id}&port=${port}`;
    expect(await ask('/a%2Fb//c/../%7E', `x=1&${own}&x=%20&y&token=secret&&z=?`)).toBe(
      '/a%2Fb//c/../%7E?x=1&x=%20&y&&z=?',
    );
    expect(await ask('', own)).toBe('/');
    expect(await ask('/', own)).toBe('/');
    expect(await ask('/x', `${own}&%74oken=secret`)).toBe('/x');
  });

  test.each(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'MKCOL'])(
    'the method %s and its headers arrive unchanged in the sandbox',
    async method => {
      await using it = await bed();
      const seen = deferred<{ method: string | undefined; headers: IncomingMessage['headers'] }>();
      const port = await inside((request, response) => {
        seen.resolve({ method: request.method, headers: request.headers });
        response.end();
      });
      const request = http.request(it.url + at(port), { method }).end();
      const [answer] = await once(request, 'response');
      answer.resume();
      expect(answer.statusCode).toBe(200);
      expect(await seen.promise).toMatchObject({ method });
    },
  );

  test('a body without a length arrives as it is sent, with its trailers', async () => {
    await using it = await bed();
    const first = deferred();
    const trailers = deferred<unknown>();
    const port = await inside(async (request, response) => {
      let body = '';
      for await (const chunk of request) {
        body += chunk;
        first.resolve();
      }
      trailers.resolve(request.trailers);
      response.end(body);
    });
    const request = http.request(it.url + at(port), { method: 'POST', headers: { Trailer: 'X-Sum' } });
    request.write('one,');
    await first.promise;
    request.addTrailers({ 'X-Sum': '42' });
    request.end('two');
    const [answer] = await once(request, 'response');
    expect(await text(answer)).toBe('one,two');
    expect(await trailers.promise).toEqual({ 'x-sum': '42' });
  });

  test('a request with Expect: 100-continue gets the interim answer and arrives with its body', async () => {
    await using it = await bed();
    const port = await inside(async (request, response) => response.end(await text(request)));
    const request = http.request(it.url + at(port), { method: 'POST', headers: { Expect: '100-continue' } });
    request.flushHeaders();
    await once(request, 'continue');
    request.end('body');
    const [answer] = await once(request, 'response');
    expect(await text(answer)).toBe('body');
  });
});

describe('headers of the platform do not reach the sandbox', () => {
  const SECRET = 'platform-token';
  const identity = { tenant: 'default', role: 'developer' } as const;
  const auth = {
    known: (token: string) => (token === SECRET ? identity : undefined),
    verify: () => Promise.reject(new Error()),
  };

  async function headersInside(it: Bed, headers: Record<string, string>): Promise<Record<string, string>> {
    const seen = deferred<Record<string, string>>();
    const port = await inside((request, response) => {
      seen.resolve(headersOf(request));
      response.end();
    });
    const request = http.get(it.url + at(port), { headers });
    const [answer] = await once(request, 'response');
    answer.resume();
    expect(answer.statusCode).toBe(200);
    return await seen.promise;
  }

  test.each<[string, Record<string, string>]>([
    ['X-Auth', { 'X-Auth': SECRET }],
    ['Authorization', { Authorization: `Bearer ${SECRET}` }],
    ['the cookie', { Cookie: `a=1; iam_token=${SECRET}; b=2` }],
    ['all of them', { 'X-Auth': SECRET, Authorization: `bearer  ${SECRET}`, Cookie: `iam_token=${SECRET}` }],
  ])('the token in %s does not reach the sandbox', async (_name, headers) => {
    await using it = await bed({ auth });
    const seen = await headersInside(it, { ...headers, tenantId: 'default', 'X-Tenant-Id': 'default' });
    expect(JSON.stringify(seen)).not.toContain(SECRET);
    expect(Object.keys(seen).map(name => name.toLowerCase())).not.toEqual(
      expect.arrayContaining([expect.stringMatching(/tenant|x-auth/)]),
    );
    expect(seen.Cookie).toBe(headers.Cookie?.includes('a=1') ? 'a=1; b=2' : undefined);
  });

  test('a token in the query of an upgrade does not reach the sandbox', async () => {
    await using it = await bed({ auth });
    const url = deferred<string | undefined>();
    const server = new WebSocketServer({ noServer: true });
    const outer = http.createServer().on('upgrade', (request, socket, head) => {
      url.resolve(request.url);
      server.handleUpgrade(request, socket, head, each => each.close());
    });
    const port = await listening(outer);
    const caller = await Caller.open(`${it.url.replace('http', 'ws')}${at(port, '/x', `&token=${SECRET}&a=1`)}`);
    await caller.closed;
    expect(await url.promise).toBe('/x?a=1');
  });

  test('Authorization reaches the sandbox beside X-Auth, and all such headers do without authentication', async () => {
    await using it = await bed({ auth });
    const own = { 'X-Auth': SECRET, Authorization: 'Basic dTpw' };
    expect(await headersInside(it, own)).toMatchObject({ Authorization: 'Basic dTpw' });
    await using open = await bed();
    expect(await headersInside(open, { Authorization: 'Bearer own' })).toMatchObject({ Authorization: 'Bearer own' });
  });

  test('headers that belong to one connection are not passed on', async () => {
    await using it = await bed();
    const seen = await headersInside(it, {
      Connection: 'keep-alive, X-Hop',
      'X-Hop': '1',
      'Keep-Alive': 'timeout=5',
      TE: 'trailers, deflate',
      'Proxy-Authorization': 'Basic x',
      'X-Stays': '1',
    });
    expect(seen).toMatchObject({ Connection: 'close', TE: 'trailers', 'X-Stays': '1' });
    for (const name of ['X-Hop', 'Keep-Alive', 'Proxy-Authorization', 'Upgrade']) expect(seen).not.toHaveProperty(name);
  });

  test('the trace id reaches the sandbox and returns in the answer', async () => {
    await using it = await bed();
    const seen = await headersInside(it, { 'X-Trace-Id': 't-1' });
    expect(seen['X-Trace-Id']).toBe('t-1');
    expect((await headersInside(it, {}))['X-Trace-Id']).toMatch(/^[0-9a-f-]{36}$/);
  });
});

describe('an answer from a port', () => {
  test('status, reason, headers and body of an answer arrive unchanged', async () => {
    await using it = await bed();
    const port = await inside((_request, response) => {
      response.writeHead(418, 'Short And Stout', [
        ...['Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'X-Mixed-Case', 'Ü', 'X-Trace-Id', 'forged'],
        ...[
          'Date',
          'Thu, 01 Jan 1970 00:00:00 GMT',
          'Connection',
          'close, X-Hop',
          'X-Hop',
          '1',
          'Set-Cookie',
          'iam_token=forged; Path=/',
          'Set-Cookie',
          '=iam_token=forged',
          'Clear-Site-Data',
          '"*"',
          'Strict-Transport-Security',
          'max-age=1',
        ],
      ]);
      response.end('pot');
    });
    const request = http.get(it.url + at(port), { headers: { 'X-Trace-Id': 't-1' } });
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    expect(answer.statusCode).toBe(418);
    expect(answer.statusMessage).toBe('Short And Stout');
    expect(answer.headers).toMatchObject({
      'set-cookie': ['a=1', 'b=2'],
      date: 'Thu, 01 Jan 1970 00:00:00 GMT',
      'x-trace-id': 't-1',
    });
    for (const name of ['x-hop', 'clear-site-data', 'strict-transport-security']) {
      expect(answer.headers).not.toHaveProperty(name);
    }
    expect(await text(answer)).toBe('pot');
  });

  test('a page from a sandbox gets an origin of its own', async () => {
    await using it = await bed();
    const port = await inside((_request, response) => response.end('<script></script>'));
    const { headers } = await fetch(it.url + at(port));
    expect(headers.get('content-security-policy')).toMatch(/^sandbox allow-scripts/);
    expect(headers.get('content-security-policy')).not.toContain('allow-same-origin');
  });

  test.each([204, 304])('an answer with status %d passes without a body', async status => {
    await using it = await bed();
    const port = await inside((_request, response) => response.writeHead(status, { etag: '"x"' }).end());
    const answer = await fetch(it.url + at(port));
    expect(answer.status).toBe(status);
    expect(answer.headers.get('etag')).toBe('"x"');
    expect(await answer.text()).toBe('');
  });

  test('an answer to HEAD has the Content-Length of the absent body', async () => {
    await using it = await bed();
    const port = await inside((_request, response) => response.writeHead(200, { 'content-length': '1234' }).end());
    const answer = await fetch(it.url + at(port), { method: 'HEAD' });
    expect(answer.headers.get('content-length')).toBe('1234');
  });

  test('an answer streams: its first bytes arrive before its end', async () => {
    await using it = await bed();
    const goOn = deferred();
    const port = await inside(async (_request, response) => {
      response.write('first');
      await goOn.promise;
      response.end('second');
    });
    const answer = await fetch(it.url + at(port));
    const reader = (answer.body as NonNullable<typeof answer.body>).getReader();
    expect(Buffer.from((await reader.read()).value ?? []).toString()).toBe('first');
    goOn.resolve();
    expect(Buffer.from((await reader.read()).value ?? []).toString()).toBe('second');
  });

  test('an answer keeps its trailers, and its interim answers do not reach the client', async () => {
    await using it = await bed();
    const port = await inside((_request, response) => {
      response.writeEarlyHints({ link: '</a.css>; rel=preload' });
      response.writeProcessing();
      response.writeHead(200, { Trailer: 'X-Sum' });
      response.write('x');
      response.addTrailers({ 'X-Sum': '42' });
      response.end();
    });
    const request = http.get(it.url + at(port));
    const hints: number[] = [];
    request.on('information', ({ statusCode }) => hints.push(statusCode));
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    await text(answer);
    expect(hints).toEqual([]);
    expect(answer.headers.trailer).toBe('X-Sum');
    expect(answer.trailers).toEqual({ 'x-sum': '42' });
  });

  test('the client gets an answer that the sandbox sends before it has read the body of the request', async () => {
    await using it = await bed();
    const port = await insideTcp(socket => {
      socket.once('data', () => socket.end('HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno'));
    });
    const request = http.request(it.url + at(port), { method: 'POST', headers: { 'content-length': '10000000' } });
    request.on('error', () => undefined);
    Readable.from([Buffer.alloc(1_000_000)]).pipe(request, { end: false });
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    expect(answer.statusCode).toBe(413);
    expect(await text(answer)).toBe('no');
    request.destroy();
  });

  test('a client that does not read stops the reading from the sandbox', async () => {
    await using it = await bed();
    let made = 0;
    const port = await inside((_request, response) => {
      new Readable({
        read() {
          made += 65_536;
          this.push(made > 200_000_000 ? null : Buffer.alloc(65_536));
        },
      }).pipe(response);
    });
    const request = http.get(it.url + at(port));
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    let before = -1;
    await vi.waitFor(
      () => {
        const isStill = made === before;
        before = made;
        expect(isStill).toBe(true);
      },
      { interval: 200, timeout: 30_000 },
    );
    expect(made).toBeLessThan(100_000_000);
    answer.destroy();
    request.destroy();
  });
});

describe('a server that does not answer', () => {
  test('a port without a listener is answered 502', async () => {
    await using it = await bed();
    const port = await inside(() => undefined);
    await new Promise(resolve => servers.pop()?.close(resolve));
    const message = `nothing listens on port ${port}`;
    expect(await it.send({ method: 'GET', url: at(port) })).toMatchObject({
      status: 502,
      body: { code: 502, message },
    });
    expect(await refusedHandshake(tunnel(it, port))).toMatchObject({ status: 502, body: { code: 502, message } });
  });

  test.each([
    ['says nothing', ''],
    ['does not speak HTTP', 'SSH-2.0-OpenSSH\r\n'],
    ['breaks off in the head', 'HTTP/1.1 200 OK\r\nX: '],
  ])('a request is answered 502 when the server %s', async (_what, bytes) => {
    await using it = await bed();
    const port = await insideTcp(socket => void socket.once('data', () => socket.end(bytes)));
    expect(await it.send({ method: 'POST', url: at(port), payload: 'x' })).toMatchObject({
      status: 502,
      body: {
        code: 502,
        message: expect.stringContaining(`the server on port ${port} closed the connection before it answered`),
      },
    });
  });

  test('an answer that breaks off after its head breaks the client’s connection', async () => {
    await using it = await bed();
    const port = await inside((_request, response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('part', () => response.destroy());
    });
    const answer = await fetch(it.url + at(port));
    expect(answer.status).toBe(200);
    await expect(answer.text()).rejects.toThrow();
  });
});

test('a server that takes a request and never answers is 504', async () => {
  await using it = await bed();
  const limits = LIMITS as { passIdleMs: number };
  const { passIdleMs } = limits;
  limits.passIdleMs = 50;
  try {
    const answer = await fetch(it.url + at(await inside(() => undefined)));
    expect(answer.status).toBe(504);
    expect(await answer.json()).toMatchObject({
      code: 504,
      message: expect.stringContaining('did not answer in 0.05 s'),
    });
  } finally {
    limits.passIdleMs = passIdleMs;
  }
});

test('a request ends in the sandbox when its client disconnects', async () => {
  await using it = await bed();
  const began = deferred();
  const ended = deferred();
  const port = await inside(request => {
    began.resolve();
    request.socket.once('close', () => ended.resolve());
  });
  const request = http.get(it.url + at(port)).on('error', () => undefined);
  await began.promise;
  request.destroy();
  await ended.promise;
});

describe('the query of a request to a port', () => {
  test.each([
    ['', 'instance is required'],
    [`instance=${AGENT.id}`, 'port is required'],
    [`instance=${AGENT.id}&port=0`, 'port must be an integer from 1 to 65535, got "0"'],
    [`instance=${AGENT.id}&port=65536`, 'port must be an integer from 1 to 65535, got "65536"'],
    [`instance=${AGENT.id}&port=http`, 'port must be an integer from 1 to 65535, got "http"'],
    [`instance=${AGENT.id}&port=1&port=2`, 'port must be given once, got "1, 2"'],
  ])('the query "%s" is answered 400', async (query, message) => {
    await using it = await bed();
    const wrong = { status: 400, body: { code: 400, message: `invalid query: ${message}` } };
    expect(await it.send({ method: 'GET', url: `/serverless/v1/http/x?${query}` })).toMatchObject(wrong);
    expect(await refusedHandshake(`${it.url.replace('http', 'ws')}/serverless/v1/ws?${query}`)).toMatchObject(wrong);
  });

  test('the query of an unknown instance, or of another tenant’s, is 404', async () => {
    await using it = await bed();
    const body = { code: 404, message: `instance not found: ${AGENT.id}` };
    const headers = { tenantid: 'other' };
    expect(await it.send({ method: 'GET', url: at(80), headers })).toMatchObject({ status: 404, body });
    expect(await refusedHandshake(tunnel(it, 80), { headers })).toMatchObject({ status: 404, body });
  });

  test('a viewer is refused', async () => {
    const viewer = { tenant: 'default', role: 'viewer' } as const;
    await using it = await bed({ auth: { known: () => viewer, verify: async () => viewer } });
    expect(await it.send({ method: 'GET', url: at(80), headers: { 'x-auth': 'v' } })).toMatchObject({ status: 403 });
    expect(await refusedHandshake(`${tunnel(it, 80)}&token=v`)).toMatchObject({ status: 403 });
  });

  test('a port that does not accept in time is answered 504', async () => {
    await using it = await bed();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const dialled = deferred();
      const access = new HostAccess('/');
      access.dial = (_port, signal) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(new Error('aborted')));
          dialled.resolve();
        });
      it.instances.inside = access;
      const answer = it.send({ method: 'GET', url: at(80) });
      await dialled.promise;
      vi.advanceTimersByTime(10_000);
      expect(await answer).toMatchObject({ status: 504, body: { message: 'port 80 did not answer in 10 s' } });
    } finally {
      vi.useRealTimers();
    }
  });
});
