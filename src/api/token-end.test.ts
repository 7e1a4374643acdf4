import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import net, { type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { SignJWT } from 'jose';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { addressBed } from '../../test/http/addresses-bed.ts';
import { ClusterWorld } from '../../test/http/cluster-world.ts';
import { AGENT, at, type Bed, bed, Inside, tunnel } from '../../test/http/passthrough-bed.ts';
import { Caller } from '../../test/http/web-socket.ts';
import { EventLog } from '../events/event-log.ts';
import { createJwtVerifier } from '../http/access/jwt.ts';
import type { FrontendOptions } from './frontend-app.ts';

const LIFE_MS = 60 * 60_000;
const SKEW_MS = 60_000;
const SECRET = Buffer.alloc(32, 's');
const auth = createJwtVerifier({ key: { kind: 'secret', secret: SECRET } });
const inside = new Inside();
let token: string;
/** Moment at which the token stops being valid: its `exp` plus the allowed clock skew. */
let endsAtMs: number;

beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'] });
  const exp = Math.floor((Date.now() + LIFE_MS) / 1000);
  endsAtMs = exp * 1000 + SKEW_MS;
  const claims = { sub: 'default', role: 'developer', exp };
  token = await new SignJWT(claims).setProtectedHeader({ alg: 'HS256' }).sign(SECRET);
});
afterEach(async () => {
  vi.useRealTimers();
  await inside.close();
});

/** Yields one line and stays open until the client disconnects. */
async function* following(signal: AbortSignal): AsyncIterable<Buffer> {
  yield Buffer.from('one\n');
  if (!signal.aborted) await once(signal, 'abort');
}
const options = {
  auth,
  jobs: {
    jobs: {
      get: async () => ({}),
      follow: async (_tenant: string, _id: string, signal: AbortSignal) => following(signal),
    },
    packages: {},
    schedules: {},
  } as never,
  observed: { log: new EventLog(), onSample: () => () => undefined, visibleTo: null } as never,
} satisfies Partial<FrontendOptions>;

async function opened(): Promise<Bed> {
  const it = await bed(options);
  it.instances.onLogs = (_request, signal) => following(signal);
  return it;
}

async function get(url: string, headers: http.OutgoingHttpHeaders = { 'X-Auth': token }): Promise<IncomingMessage> {
  const [answer] = await once(http.get(url, { headers, agent: false }), 'response');
  return answer;
}

/** Awaits the end of a stream; `early` is true if the stream ended before the token expired. */
async function ends<End>(url: string, end: Promise<End>): Promise<{ readonly early: boolean; readonly end: End }> {
  let early = false;
  void end.then(() => {
    early = true;
  });
  vi.advanceTimersByTime(endsAtMs - 1 - Date.now());
  // An earlier end would be visible here before these health checks are answered.
  for (let round = 0; round < 5; round += 1) await text(await get(`${url}/healthz`));
  const hasEnded = early;
  vi.advanceTimersByTime(1);
  return { early: hasEnded, end: await end };
}

const cleanly = (answer: IncomingMessage) => text(answer).then(() => answer.complete);

describe('connections without a time limit end with their token', () => {
  test.each([
    ['the stream of events', '/api/events'],
    ['a followed log of an agent', `/api/agent/${AGENT.id}/logs?follow=true`],
    ['a followed log of a job', '/api/jobs/one/logs?follow=true'],
  ])('%s ends wholly with its token, and a new request is refused', async (_what, path) => {
    await using it = await opened();
    const answer = await get(it.url + path);
    expect(answer.statusCode).toBe(200);
    expect(await ends(it.url, cleanly(answer))).toEqual({ early: false, end: true });
    const again = await get(it.url + path);
    expect([again.statusCode, JSON.parse(await text(again)).message]).toEqual([
      401,
      'authentication failed: the token has expired',
    ]);
  });

  test.each<[string, (it: Bed) => Promise<string>]>([
    ['a terminal', async it => `${it.url}/api/agent/${AGENT.id}/exec?command=cat`],
    ['the log of a job', async it => `${it.url}/api/jobs/one/logs/tail?`],
    ['a byte channel', async it => tunnel(it, await inside.tcp(() => undefined))],
  ])('the WebSocket of %s closes with 4401 when its token expires', async (_what, urlOf) => {
    await using it = await opened();
    const url = (await urlOf(it)).replace('http', 'ws');
    const caller = await Caller.open(`${url}&token=${token}`);
    expect(await ends(it.url, caller.closed)).toEqual({
      early: false,
      end: { code: 4401, reason: 'the token has expired' },
    });
  });

  test('WebSockets end with their token, also when the caller does not answer the close', async () => {
    await using it = await opened();
    const sockets: Socket[] = [];
    const port = await inside.tcp(socket => void sockets.push(socket));
    const caller = await Caller.open(`${tunnel(it, port).replace('http', 'ws')}&token=${token}`);
    await vi.waitFor(() => expect(sockets).toHaveLength(1));
    caller.socket.pause();
    expect((await ends(it.url, once((sockets[0] as Socket).resume(), 'end'))).early).toBe(false);
    caller.socket.terminate();
  });
});

/** Opens an upgraded connection; `ended` resolves when the server ends it. */
async function upgraded(it: { readonly url: string }, path: string, head: string) {
  const socket = net.connect(Number(new URL(it.url).port), '127.0.0.1');
  socket.write(`GET ${path} HTTP/1.1\r\n${UPGRADE}${head}\r\n`);
  const [answer] = await once(socket, 'data');
  expect(String(answer)).toMatch(/^HTTP\/1\.1 101 /);
  return { ended: once(socket.resume(), 'end').then(() => socket.destroy()) };
}

const UPGRADE = 'Connection: Upgrade\r\nUpgrade: own\r\n';

/** Starts a server that accepts every upgrade; returns its port. */
const upgrading = () =>
  inside.listen(
    http.createServer().on('upgrade', (_request, socket) => {
      socket.write(`HTTP/1.1 101 Switching\r\n${UPGRADE}\r\n`);
    }),
  );

describe('upgraded connections end with their token', () => {
  test('an upgrade at a port ends with its token', async () => {
    await using it = await opened();
    const { ended } = await upgraded(it, at(await upgrading()), `Host: localhost\r\nX-Auth: ${token}\r\n`);
    expect((await ends(it.url, ended)).early).toBe(false);
  });

  test.each(['by host', 'by path'])('an upgrade at an address %s ends with its token', async how => {
    await using it = await addressBed(options);
    it.expose({ port: await upgrading(), access: 'token' });
    const [host, path] = how === 'by host' ? [it.host('hello--default'), '/'] : ['localhost', '/default/hello/'];
    const { ended } = await upgraded(it, path, `Host: ${host}\r\nX-Auth: ${token}\r\n`);
    expect((await ends(it.url, ended)).early).toBe(false);
  });

  test('an upgraded connection at an address ends with the cookie of its link', async () => {
    await using it = await addressBed(options);
    const host = it.host('hello--default');
    const id = it.expose({ port: await upgrading(), access: 'link' });
    const body = JSON.stringify({ expires_seconds: Math.floor(endsAtMs / 1000) - Math.floor(Date.now() / 1000) });
    const made = await it.ask('localhost', `/api/agent/${id}/link`, {
      method: 'POST',
      headers: { 'X-Auth': token },
      body,
    });
    const visit = await it.ask(host, new URL(JSON.parse(made.text).url).search.replace(/^/, '/'));
    const cookie = String(visit.headers['set-cookie']).split(';', 1)[0];
    const { ended } = await upgraded(it, '/', `Host: ${host}\r\nCookie: ${cookie}\r\n`);
    expect((await ends(it.url, ended)).early).toBe(false);
  });
});

describe('calls do not end with their token', () => {
  test('an answer of a port continues after the token expires, within its own limits', async () => {
    await using it = await opened();
    const port = await inside.http((_request, response) => {
      response.write('one ');
      setTimeout(() => response.end('two'), 2 * LIFE_MS);
    });
    const answer = await get(it.url + at(port));
    vi.advanceTimersByTime(2 * LIFE_MS);
    expect(await text(answer)).toBe('one two');
  });
});

describe('connections to another replica end with their token', () => {
  test('a followed log of another replica ends wholly with its token', async () => {
    await using world = await ClusterWorld.start(options);
    world.cluster.owner.instances.onLogs = (_request, signal) => following(signal);
    const answer = await get(`${world.urls.forwarded}/api/agent/${AGENT.id}/logs?follow=true`);
    expect(world.cluster.owner.instances.logRequests).toHaveLength(1);
    expect(await ends(world.urls.forwarded, cleanly(answer))).toEqual({ early: false, end: true });
  });

  test('a terminal of another replica closes with the reason when its token expires', async () => {
    await using world = await ClusterWorld.start(options);
    const url = `${world.urls.forwarded.replace('http', 'ws')}/api/agent/${AGENT.id}/exec?command=cat`;
    const caller = await Caller.open(url, { headers: { 'X-Auth': token } });
    expect(await ends(world.urls.forwarded, caller.closed)).toEqual({
      early: false,
      end: { code: 4401, reason: 'the token has expired' },
    });
  });

  test('a token expiry in a header of the client is ignored', async () => {
    await using world = await ClusterWorld.start(options);
    world.cluster.owner.instances.onLogs = (_request, signal) => following(signal);
    const answer = await get(`${world.urls.forwarded}/api/agent/${AGENT.id}/logs?follow=true`, {
      'X-Auth': token,
      'X-Rookery-Until': '999999999999999',
    });
    expect(await ends(world.urls.forwarded, cleanly(answer))).toEqual({ early: false, end: true });
  });
});
