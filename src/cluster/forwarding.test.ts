import { once } from 'node:events';
import http from 'node:http';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ClusterWorld, comparable, head, headersOf, say, URN } from '../../test/http/cluster-world.ts';
import { AGENT, at } from '../../test/http/passthrough-bed.ts';
import { unavailable } from '../core/error.ts';

let world: ClusterWorld;
let echoPort: number;
const insideSaw: { head: readonly string[]; url: string }[] = [];

beforeAll(async () => {
  world = await ClusterWorld.start();
  echoPort = await world.ports.http((request, response) => {
    insideSaw.push({ head: headersOf(request), url: `${request.method} ${request.url}` });
    if (request.url === '/odd') {
      response.writeHead(299, 'Quite Fine', [
        'X-Two',
        '1',
        'x-two',
        '2',
        'Set-Cookie',
        'a=1',
        'Set-Cookie',
        'b=2',
        'X-Latin',
        'h\xe4',
      ]);
    } else if (request.url === '/empty') response.writeHead(204);
    else if (request.url === '/same') response.writeHead(304, { ETag: '"x"' });
    else if (request.url === '/trailers') {
      response.writeHead(200, { Trailer: 'X-Sum' });
      response.write('body');
      response.addTrailers({ 'X-Sum': '42' });
    } else if (request.url === '/high') response.writeHead(999, 'Odd');
    else if (request.url === '/length') response.writeHead(200, { 'Content-Length': '5' });
    if (request.url === '/length') {
      response.end(request.method === 'HEAD' ? undefined : 'hello');
      return;
    }
    if (request.url === '/broken') {
      response.write('some of it');
      setImmediate(() => response.destroy());
      return;
    }
    request.on('data', chunk => response.write(chunk));
    request.on('end', () => response.end());
  });
});
afterAll(() => world[Symbol.asyncDispose]());

const agent = (path: string) => `/api/agent/${AGENT.id}${path}`;
const invocations = `/serverless/v1/functions/${URN}/invocations`;
const ofFunction = (path: string) => `/serverless/v1/functions/${URN}${path}`;
const JSON_TYPE = ['Content-Type', 'application/json'] as const;
const TRACE = ['X-Trace-Id', 'trace-1'] as const;
type Headers = readonly (readonly [string, string])[];

function withBody(method: string, path: string, body: string, headers: Headers = []): string {
  return head(method, path, [TRACE, ['Content-Length', String(Buffer.byteLength(body, 'latin1'))], ...headers]) + body;
}
const plain = (method: string, path: string, headers: Headers = []) => head(method, path, [TRACE, ...headers]);
const chunked = (method: string, path: string, chunks: readonly string[], headers: Headers = [], end = '0\r\n\r\n') =>
  head(method, path, [TRACE, ['Transfer-Encoding', 'chunked'], ...headers]) +
  chunks.map(chunk => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join('') +
  end;
const inside = (method: string, path: string) => plain(method, at(echoPort, path));

const multipart = (boundary: string, content: string) =>
  `--${boundary}\r\nContent-Disposition: form-data; name="path"\r\n\r\n/dir/up.txt\r\n--${boundary}\r\n` +
  `Content-Disposition: form-data; name="file"; filename="up.txt"\r\n\r\n${content}\r\n--${boundary}--\r\n`;

/** Valid and invalid requests for every route of a resource that lives on one replica. */
const REQUESTS: readonly (readonly [string, () => string])[] = [
  ['a call', () => withBody('POST', agent('/invoke'), '{"a":1}', [JSON_TYPE])],
  ['a call without a body', () => plain('POST', agent('/invoke'))],
  ['a call with an empty body', () => withBody('POST', agent('/invoke'), '')],
  ['a call that is no JSON', () => withBody('POST', agent('/invoke'), '{"a":')],
  ['a call by the router', () => withBody('POST', agent('/invoke?x=1'), '{"a":1}')],
  ['a call in chunks', () => chunked('POST', agent('/invoke'), ['{"a"', ':1}'])],
  ['a call in chunks with trailers', () => chunked('POST', agent('/invoke'), ['{}'], [], '0\r\nX-Sum: 1\r\n\r\n')],
  ['a call of 1 MB', () => withBody('POST', agent('/invoke'), JSON.stringify('x'.repeat(1_000_000)))],
  ['a call that is announced too large', () => plain('POST', agent('/invoke'), [['Content-Length', '99999999']])],
  ['a call that gets too large', () => chunked('POST', agent('/invoke'), ['y'.repeat(7_000_000)])],
  ['a call with an odd type', () => withBody('POST', agent('/invoke'), '{}', [['Content-Type', 'not a type']])],
  ['a call with a bad timeout', () => withBody('POST', agent('/invoke'), '{}', [['X-Invoke-Timeout-Ms', 'soon']])],
  ['a call of nobody', () => withBody('POST', '/api/agent/nobody/invoke', '{}')],
  ['a call of another tenant', () => withBody('POST', agent('/invoke'), '{}', [['X-Tenant-Id', 'other']])],
  ['a call with Expect', () => withBody('POST', agent('/invoke'), '{"a":1}', [['Expect', '100-continue']])],
  ['an escaped path', () => withBody('POST', agent('/invoke').replace('agent', '%61gent'), '{}')],
  ['an exec', () => withBody('POST', agent('/exec'), '{"command":["true"],"odd":1}')],
  ['an exec that is wrong', () => withBody('POST', agent('/exec'), '{"command":5}')],
  ['a log', () => plain('GET', agent('/logs'))],
  ['a log that is followed', () => plain('GET', agent('/logs?follow=true'))],
  ['the head of a log', () => plain('HEAD', agent('/logs'))],
  ['a log that is asked for wrongly', () => plain('GET', agent('/logs?tail=-1'))],
  ['a log of nobody', () => plain('GET', '/api/agent/nobody/logs')],
  ['a file', () => plain('GET', agent('/files/download?path=/file.txt'))],
  ['a large file', () => plain('GET', agent('/files/download?path=/large.bin'))],
  ['a part of a file', () => plain('GET', agent('/files/download?path=/large.bin'), [['Range', 'bytes=5-9']])],
  ['the head of a file', () => plain('HEAD', agent('/files/download?path=/large.bin'))],
  ['no file', () => plain('GET', agent('/files/download?path=/nothing'))],
  ['a list of files', () => plain('GET', agent('/files/list?path=/dir'))],
  [
    'an upload',
    () =>
      withBody('POST', agent('/files/upload'), multipart('b', 'x'), [
        ['Content-Type', 'multipart/form-data; boundary=b'],
      ]),
  ],
  [
    'a large upload',
    () =>
      withBody('POST', agent('/files/upload'), multipart('b', 'x'.repeat(500_000)), [
        ['Content-Type', 'multipart/form-data; boundary=b'],
      ]),
  ],
  [
    'an upload that is none',
    () => withBody('POST', agent('/files/upload'), 'nothing', [['Content-Type', 'text/plain']]),
  ],
  ['a directory that is there', () => plain('POST', agent('/files/mkdir?path=/dir'))],
  ['a delete of nobody', () => plain('DELETE', '/api/agent/nobody')],
  ['a restart of nobody', () => plain('POST', '/api/agent/nobody/restart')],
  ['a call of a function', () => withBody('POST', invocations, '{"size":10}')],
  ['a call of a function, short', () => withBody('POST', '/invocations/default/svc/hello:latest/', '{}')],
  ['a call of a function that answers much', () => withBody('POST', invocations, '{"size":200000}')],
  ['a call of a function that fails', () => withBody('POST', invocations, '{"fail":4002}')],
  ['a call of a function with an escaped URN', () => withBody('POST', invocations.replaceAll('@', '%40'), '{}')],
  ['a call of a function that is no JSON', () => withBody('POST', invocations, '{')],
  ['a call of a function that is too large', () => chunked('POST', invocations, ['y'.repeat(7_000_000)])],
  ['a stream', () => withBody('POST', invocations, '{"events":50}', [['Accept', 'text/event-stream']])],
  [
    'a stream that fails',
    () => withBody('POST', invocations, '{"events":2,"fail":4002}', [['Accept', 'text/event-stream']]),
  ],
  ['a session that ends', () => plain('DELETE', ofFunction('/sessions/known'))],
  ['no session', () => plain('DELETE', ofFunction('/sessions/none'))],
  ['a session that is interrupted', () => plain('POST', ofFunction('/sessions/known/interrupt'))],
  ['the instances of a function', () => plain('GET', ofFunction('/instances'))],
  ['the log of a function', () => plain('GET', ofFunction('/logs'))],
  ['the log of a job', () => plain('GET', '/api/jobs/done/logs')],
  ['the long log of a job', () => plain('GET', '/api/jobs/long/logs/')],
  ['the log of a job that is followed', () => plain('GET', '/api/jobs/long/logs?follow=true')],
  ['the log of no job', () => plain('GET', '/api/jobs/none/logs')],
  ['a job that is stopped', () => plain('POST', '/api/jobs/long/stop')],
  ['a job that is deleted', () => plain('DELETE', '/api/jobs/done')],
  ['no job that could be deleted', () => plain('DELETE', '/api/jobs/none')],
  ['a port', () => inside('GET', '/')],
  ['a port: HEAD', () => inside('HEAD', '/length')],
  ['a port: OPTIONS', () => inside('OPTIONS', '/')],
  ['a port: PROPFIND with a body', () => withBody('PROPFIND', at(echoPort, '/'), '<x/>')],
  ['a port: odd status and headers', () => inside('GET', '/odd')],
  ['a port: a status that is none', () => inside('GET', '/high')],
  ['a port: 204', () => inside('GET', '/empty')],
  ['a port: 304', () => inside('GET', '/same')],
  ['a port: trailers', () => inside('GET', '/trailers')],
  ['a port: a length', () => inside('GET', '/length')],
  ['a port: an answer that breaks off', () => inside('GET', '/broken')],
  [
    'a port: a body in chunks with trailers',
    () => chunked('POST', at(echoPort, '/echo'), ['one', 'two'], [['Trailer', 'X-Sum']], '0\r\nX-Sum: 5\r\n\r\n'),
  ],
  ['a port: a body of a GET', () => withBody('GET', at(echoPort, '/echo'), 'hello')],
  ['a port where nothing listens', () => plain('GET', at(1, '/'))],
  ['a port of nobody', () => plain('GET', at(echoPort, '/').replace(AGENT.id, 'nobody'))],
  ['a port without an instance', () => plain('GET', `/serverless/v1/http/?port=${echoPort}`)],
  ['two instances at once', () => plain('GET', at(echoPort, '/', '&instance=other'))],
  [
    'an upgrade to what knows none',
    () => head('POST', agent('/invoke'), [TRACE, ['Connection', 'Upgrade'], ['Upgrade', 'h2c']]),
  ],
  [
    'an upgrade with a body in chunks',
    () =>
      head('POST', agent('/invoke'), [
        TRACE,
        ...([
          ['Connection', 'Upgrade'],
          ['Upgrade', 'h2c'],
          ['Transfer-Encoding', 'chunked'],
        ] as const),
      ]),
  ],
  [
    'a WebSocket that is none',
    () =>
      head('GET', `/serverless/v1/ws?instance=${AGENT.id}&port=${echoPort}`, [
        TRACE,
        ['Connection', 'Upgrade'],
        ['Upgrade', 'websocket'],
      ]),
  ],
];

test.each(REQUESTS)(
  'a forwarded request gets the same answer as a direct request, byte for byte: %s',
  async (_, request) => {
    const direct = comparable(await say(world.urls.direct, request()));
    const before = world.cluster.first.results.length;
    const forwarded = comparable(await say(world.urls.forwarded, request()));
    expect(forwarded).toEqual(direct);
    expect(direct.head[0]).toMatch(/^HTTP\/1.1 \d{3} /);
    expect(world.cluster.first.results.length - before).toBeLessThanOrEqual(1);
  },
);

test.each([
  ['a terminal', agent('/exec')],
  ['a tail', '/api/jobs/done/logs/tail'],
  ['a tunnel', `/serverless/v1/ws?instance=${AGENT.id}&port=1`],
])('a plain request to a WebSocket route gets 426 and the Upgrade header, also forwarded: %s', async (_, path) => {
  const ask = async (url: string) => {
    const request = http.get(url + path, { agent: false, headers: { 'X-Trace-Id': 't' } });
    const [answer] = (await once(request, 'response')) as [http.IncomingMessage];
    const { statusCode, headers } = answer;
    const body = await text(answer);
    return { statusCode, headers: { ...headers, date: '' }, body };
  };
  const direct = await ask(world.urls.direct);
  expect(await ask(world.urls.forwarded)).toEqual(direct);
  expect(direct).toMatchObject({ statusCode: 426, headers: { upgrade: 'websocket', connection: 'Upgrade' } });
});

test('a head with non-ASCII bytes is forwarded unchanged before a chunked body', async () => {
  const request = chunked('POST', at(echoPort, '/odd'), ['one'], [['X-Latin', 'h\xe4']]);
  insideSaw.length = 0;
  const direct = comparable(await say(world.urls.direct, request));
  expect(comparable(await say(world.urls.forwarded, request))).toEqual(direct);
  expect(insideSaw[1]).toEqual(insideSaw[0]);
});

test('the requests of this file that name an existing resource were answered by the other replica', () => {
  const { results, instances } = world.cluster.first;
  expect(instances.calls).toEqual([]);
  expect(results.filter(result => result === 'answered').length).toBeGreaterThan(REQUESTS.length - 6);
});

test('requests of one connection are answered in order, forwarded or not', async () => {
  const open = (method: string, path: string) => `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n`;
  const requests =
    `${open('POST', agent('/invoke'))}Content-Length: 1\r\n\r\n1` +
    `${open('GET', '/healthz')}\r\n` +
    `${open('POST', agent('/invoke'))}Content-Length: 1\r\n\r\n2` +
    plain('GET', agent('/logs'));
  const answer = (await say(world.urls.forwarded, requests)).toString();
  expect(answer.match(/"data":\d|"status":"ok"|line 0/g)).toEqual(['"data":1', '"status":"ok"', '"data":2', 'line 0']);
});

test('a caller of HTTP/1.0 gets the same answer forwarded and directly', async () => {
  const request = (path: string) => `GET ${path} HTTP/1.0\r\nHost: localhost\r\nX-Trace-Id: t\r\n\r\n`;
  for (const path of [agent('/logs'), agent('/files/download?path=/large.bin'), at(echoPort, '/trailers')]) {
    const direct = comparable(await say(world.urls.direct, request(path)));
    expect(comparable(await say(world.urls.forwarded, request(path)))).toEqual(direct);
  }
});

describe('requests that reach sandboxes and handlers', () => {
  const odd: Headers = [
    ['X-Own', 'one'],
    ['x-own', 'two'],
    ['Cookie', 'a=1; iam_token=secret'],
    ['Authorization', 'Bearer nobody'],
    ['TE', 'trailers, gzip'],
    ['Keep-Alive', 'timeout=5'],
    ['X-Named', 'of the connection'],
    ['X-Latin', 'h\xe4'],
    ['Proxy-Authorization', 'x'],
    ['Content-Type', 'not a media type'],
  ];

  test('a server in a sandbox receives the same request forwarded and directly', async () => {
    const request = withBody('POST', at(echoPort, '/a%2Fb//c/../x', '&x=1&token=t'), 'hello', odd).replace(
      'Connection: close',
      'Connection: close, x-named',
    );
    insideSaw.length = 0;
    await say(world.urls.direct, request);
    await say(world.urls.forwarded, request);
    expect(insideSaw).toHaveLength(2);
    expect(insideSaw[1]).toEqual(insideSaw[0]);
    expect(insideSaw[1]?.head.join('\n')).not.toMatch(/rookery|of the connection/i);
  });

  test.each([
    ['by the fast path', invocations],
    ['by the router', `${invocations}?x=1`],
  ])('a handler receives the same call forwarded and directly, %s', async (_, path) => {
    const request = withBody('POST', path, '{"a":1}', odd).replace('Connection: close', 'Connection: close, X-Named');
    world.seen.length = 0;
    await say(world.urls.direct, request);
    await say(world.urls.forwarded, request);
    const [direct, forwarded] = world.seen.map(({ urn, tenant, headers, call }) => ({
      ...{ urn, tenant, headers },
      body: call.body.toString(),
      header: { ...call.header, requestId: '', traceparent: '' },
    }));
    expect(forwarded).toEqual(direct);
    expect(forwarded?.header.headers).toMatchObject({ 'x-own': 'one, two', cookie: 'a=1' });
    expect(forwarded?.header.headers).not.toHaveProperty('x-named');
  });

  test('a call has the trace id that the first replica made', async () => {
    world.seen.length = 0;
    const answer = await fetch(world.urls.forwarded + invocations, { method: 'POST', body: '{}' });
    expect(answer.headers.get('x-trace-id')).toBe(world.seen[0]?.call.header.traceId);
  });

  test.each([
    ['by the fast path', invocations],
    ['by the router', `${invocations}?x=1`],
  ])('the trace of a traceparent continues on the other replica, %s', async (_, path) => {
    world.seen.length = 0;
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
    const headers = { traceparent: `00-${trace}-00f067aa0ba902b7-01` };
    const answer = await fetch(world.urls.forwarded + path, { method: 'POST', body: '{}', headers });
    expect(answer.headers.get('x-trace-id')).toBe(trace);
    expect(world.seen[0]?.call.header.traceId).toBe(trace);
    expect(world.seen[0]?.call.header.traceparent).toMatch(
      new RegExp(`^00-${trace}-(?!00f067aa0ba902b7)[0-9a-f]{16}-01$`),
    );
  });
});

describe('requests that are not forwarded', () => {
  test.each([
    ['a get of an agent', 'GET', agent('')],
    ['a list of agents', 'GET', '/api/agent'],
    ['a get of a job', 'GET', '/api/jobs/done'],
    ['health', 'GET', '/healthz'],
    ['an unknown route', 'GET', '/nothing'],
  ])('the request %s is answered by the replica that receives the request', async (_, method, path) => {
    const asked = world.cluster.first.locator.asked.length;
    await (await fetch(world.urls.forwarded + path, { method })).text();
    expect(world.cluster.first.locator.asked).toHaveLength(asked);
  });
});

test('the locator gets the id, or the URN without version, from the fast path and from the router', async () => {
  const { locator } = world.cluster.first;
  const ask = async (path: string, method = 'POST') => {
    locator.asked.length = 0;
    const body = method === 'POST' ? '{}' : null;
    await (await fetch(world.urls.forwarded + path, { method, body })).arrayBuffer();
    return locator.asked.map(({ thing, key }) => `${thing} ${key}`);
  };
  const functionUrn = URN.replace(':$latest', '');
  expect(await ask(agent('/invoke'))).toEqual([`agent ${AGENT.id}`]);
  expect(await ask(agent('/invoke?x'))).toEqual([`agent ${AGENT.id}`]);
  for (const path of [
    invocations,
    `${invocations}?x`,
    invocations.replace('$latest', '1.0'),
    '/invocations/default/svc/hello:1.0/',
  ]) {
    expect(await ask(path)).toEqual([`function ${functionUrn}`]);
  }
  expect(await ask('/api/jobs/done/logs', 'GET')).toEqual(['job-log done']);
  expect(await ask(at(echoPort, '/'), 'GET')).toEqual([`instance ${AGENT.id}`]);
});

test('forwarded and direct answers are the same when the locators resolve asynchronously', async () => {
  const { first, owner } = world.cluster;
  first.locator.isSlow = true;
  owner.locator.isSlow = true;
  try {
    for (const [, request] of REQUESTS.slice(0, 30)) {
      const direct = comparable(await say(world.urls.direct, request()));
      expect(comparable(await say(world.urls.forwarded, request()))).toEqual(direct);
    }
  } finally {
    first.locator.isSlow = false;
    owner.locator.isSlow = false;
  }
});

describe('a locator that fails', () => {
  test.each([agent('/invoke'), agent('/invoke?x'), invocations, `${invocations}?x`])(
    'a request gets 503 and Retry-After when the locator fails: %s',
    async path => {
      const { locator } = world.cluster.first;
      const { locate } = locator;
      locator.locate = () => Promise.reject(unavailable('the database is away', { retryAfterSeconds: 1 }));
      try {
        const answer = await fetch(world.urls.forwarded + path, { method: 'POST', body: '{}' });
        expect(answer.headers.get('retry-after')).toBe('1');
        expect({ status: answer.status, text: await answer.text() }).toMatchObject({
          status: 503,
          text: expect.stringContaining('the database is away'),
        });
      } finally {
        locator.locate = locate;
      }
    },
  );
});

test('forwarding reuses connections and opens at most one for 50 requests in sequence', async () => {
  const agentOfCaller = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const port = Number(new URL(world.urls.forwarded).port);
  const before = world.cluster.first.peers.openConnections;
  for (let at = 0; at < 50; at += 1) {
    const request = http.request({
      agent: agentOfCaller,
      port,
      host: '127.0.0.1',
      method: 'POST',
      path: agent('/invoke'),
    });
    request.end('1');
    const [answer] = (await once(request, 'response')) as [http.IncomingMessage];
    for await (const _ of answer);
  }
  agentOfCaller.destroy();
  expect(world.cluster.first.peers.openConnections).toBeLessThanOrEqual(Math.max(before, 1));
});
