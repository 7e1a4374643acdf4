import http from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { SignJWT } from 'jose';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { SPEC, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { resourceExhausted } from '../../core/error.ts';
import { createJwtVerifier } from '../access/jwt.ts';

const SECRET = Buffer.from('0123456789abcdef0123456789abcdef');
const TOKEN = await new SignJWT({ role: 'user' })
  .setProtectedHeader({ alg: 'HS256' })
  .setSubject('default')
  .setExpirationTime('1h')
  .sign(SECRET);
const AGENT = newInstance(SPEC);
const PATH = `/api/agent/${AGENT.id}/invoke`;

interface Asked {
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** The agent whose connection is used; absent: a new connection. */
  readonly agent?: http.Agent;
}

interface Answered {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly text: string;
}

/** Sends the request over a socket, where the fast path takes plain requests. */
function overSocket(url: string, { path = PATH, headers = {}, body = '{"a":1}', agent }: Asked): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const request = http.request(`${url}${path}`, { method: 'POST', headers, agent: agent ?? false }, response => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', chunk => {
        text += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }));
    });
    request.on('error', reject);
    request.end(body);
  });
}

/** Sends the request to the router, without the fast path. */
async function overRouter(frontend: TestFrontend, { path = PATH, headers = {}, body = '{"a":1}' }: Asked) {
  const {
    status,
    headers: answered,
    text,
  } = await frontend.send({ method: 'POST', url: path, headers, payload: body });
  return { status, headers: answered, text };
}

/** Removes the headers that may differ between the fast path and the router. */
function comparable({ status, headers, text }: Answered) {
  const { date: _date, connection: _connection, 'keep-alive': _keepAlive, ...rest } = headers;
  return { status, headers: rest, text };
}

const TRACE = { 'x-trace-id': 't1' };

describe('the fast path answers as the router does', () => {
  test.each<[string, Asked]>([
    ['a successful call', {}],
    ['no body', { body: '' }],
    ['a body that is not JSON', { body: '{"a":' }],
    ['a missing agent', { path: '/api/agent/00000000-0000-4000-8000-000000000000/invoke' }],
    ['a timeout that is not a number', { headers: { 'x-invoke-timeout-ms': 'soon' } }],
    ['an invalid content type', { headers: { 'content-type': 'none' } }],
    ['an unknown content type', { headers: { 'content-type': 'application/x-own' } }],
    ['another host', { headers: { host: 'example.com' } }],
    ['a page of another site', { headers: { 'sec-fetch-site': 'cross-site' } }],
    ['an invalid tenant', { headers: { tenantid: '-' } }],
    ['another tenant', { headers: { tenantid: 'other' } }],
    ['an answer larger than one piece', { body: JSON.stringify('x'.repeat(40_000)) }],
  ])('fast path and router give the same answer: %s', async (_title, asked) => {
    await using frontend = testFrontend();
    frontend.instances.put(AGENT);
    frontend.instances.onInvoke = call => ({ ok: true, data: call.body, runMicros: 1 });
    const url = await frontend.listen();
    const tryServe = vi.spyOn(frontend.app.fastPath, 'tryServe');
    const traced = { ...asked, headers: { host: 'localhost', ...TRACE, ...asked.headers } };
    const direct = comparable(await overSocket(url, traced));
    expect(tryServe.mock.results.map(({ value }) => value)).toEqual([true]);
    expect(direct).toEqual(comparable(await overRouter(frontend, traced)));
    // Metrics count both requests, and their log lines are the same except for the time.
    await vi.waitFor(() => expect(frontend.requests.length).toBe(2));
    expect(frontend.requests[0]).toEqual(frontend.requests[1]);
    const lines = frontend.lines.map(({ level, text, fields: { ms: _ms, ...fields } }) => ({ level, text, fields }));
    if (lines.length > 0) expect(lines[0]).toEqual(lines[1]);
  });

  test.each<[string, Record<string, string>, number]>([
    ['no token', {}, 401],
    ['a wrong token', { authorization: 'Bearer x.y.z' }, 401],
    ['a token on its first and second use', { authorization: `Bearer ${TOKEN}` }, 200],
    ["a tenant that is not the token's", { authorization: `Bearer ${TOKEN}`, tenantid: 'other' }, 403],
  ])('fast path and router agree when authentication is on: %s', async (_title, headers, status) => {
    await using frontend = testFrontend({ auth: createJwtVerifier({ key: { kind: 'secret', secret: SECRET } }) });
    frontend.instances.put(AGENT);
    frontend.instances.onInvoke = call => ({ ok: true, data: call.body, runMicros: 1 });
    const url = await frontend.listen();
    const asked = { headers: { host: 'localhost', ...TRACE, ...headers } };
    for (const _ of [1, 2]) {
      const direct = comparable(await overSocket(url, asked));
      expect(direct.status).toBe(status);
      expect(direct).toEqual(comparable(await overRouter(frontend, asked)));
    }
  });

  test('the fast path answers 429 before the body arrives when the queue is full', async () => {
    await using frontend = testFrontend();
    frontend.instances.put(AGENT);
    frontend.instances.full = resourceExhausted('too many calls are waiting', { retryAfterSeconds: 1 });
    const url = await frontend.listen();
    const headers = { 'content-length': '7', ...TRACE };
    const request = http.request(`${url}${PATH}`, { method: 'POST', headers, agent: false });
    const answer = new Promise<http.IncomingMessage>((resolve, reject) => {
      request.on('response', resolve);
      request.on('error', reject);
    });
    request.flushHeaders();
    const { statusCode, headers: answered } = await answer;
    expect({ statusCode, retry: answered['retry-after'] }).toEqual({ statusCode: 429, retry: '1' });
    request.end('{"a":1}');
    expect(frontend.outcomes).toEqual(['resource_exhausted']);
    expect(frontend.requests).toMatchObject([{ status: 429 }]);
    expect(frontend.instances.calls).toEqual([]);
  });

  describe('a request that repeats a refused one early on the same connection', () => {
    const WAIT_MS = 250;
    const RETRY_AFTER_MS = 1000;
    const FULL = resourceExhausted('too many calls are waiting', { retryAfterSeconds: 1 });

    beforeEach(() => {
      vi.useFakeTimers({ toFake: ['setTimeout', 'performance'] });
    });
    afterEach(() => {
      vi.useRealTimers();
    });

    async function refusedCaller(frontend: TestFrontend) {
      const { instances } = frontend;
      instances.put(AGENT);
      instances.onInvoke = call => ({ ok: true, data: call.body, runMicros: 1 });
      instances.full = FULL;
      const url = await frontend.listen();
      const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
      const send = async (asked: Asked = {}) => (await overSocket(url, { agent, ...asked })).status;
      /** Resolves when one more request has arrived. */
      const oneMore = async () => {
        const before = instances.refusalsAsked;
        while (instances.refusalsAsked === before) await setImmediate();
      };
      expect(await send()).toBe(429);
      return { url, agent, send, oneMore };
    }

    // `node:http` reads the first request of a connection.
    // Later requests are read without `node:http` unless a header requires it.
    test.each<[string, Asked]>([
      ['read without node:http', {}],
      ['read by node:http', { headers: { te: 'trailers' } }],
    ])('an early repeat waits, while requests on other connections do not: %s', async (_way, asked) => {
      await using frontend = testFrontend();
      const { url, send, oneMore, agent } = await refusedCaller(frontend);
      for (const _ of [1, 2]) {
        const statuses: number[] = [];
        const again = send(asked).then(status => statuses.push(status));
        await oneMore();
        expect((await overSocket(url, {})).status).toBe(429);
        vi.advanceTimersByTime(WAIT_MS - 1);
        expect((await overSocket(url, {})).status).toBe(429);
        expect(statuses).toEqual([]);
        vi.advanceTimersByTime(1);
        await again;
        expect(statuses).toEqual([429]);
      }
      vi.advanceTimersByTime(RETRY_AFTER_MS);
      expect(await send(asked)).toBe(429);
      agent.destroy();
      expect(frontend.outcomes).toEqual(Array.from({ length: 8 }, () => 'resource_exhausted'));
      expect(frontend.requests.map(({ status }) => status)).toEqual(Array.from({ length: 8 }, () => 429));
    });

    test('an early repeat runs after the delay when capacity is free, or at once if free before', async () => {
      await using frontend = testFrontend();
      const { send, oneMore, agent } = await refusedCaller(frontend);
      const status = send();
      await oneMore();
      frontend.instances.full = undefined;
      vi.advanceTimersByTime(WAIT_MS);
      expect(await status).toBe(200);
      expect(await send()).toBe(200);
      agent.destroy();
      expect(frontend.outcomes).toEqual(['resource_exhausted', 'ok', 'ok']);
    });

    test('an early repeat counts the delay towards the timeout and does not run when no time is left', async () => {
      await using frontend = testFrontend();
      const { send, oneMore, agent } = await refusedCaller(frontend);
      const { instances } = frontend;
      for (const [timeout, expected] of [
        ['1000', 200],
        [String(WAIT_MS), 500],
      ] as const) {
        const status = send({ headers: { 'x-invoke-timeout-ms': timeout } });
        await oneMore();
        instances.full = undefined;
        vi.advanceTimersByTime(WAIT_MS);
        expect(await status).toBe(expected);
        instances.full = FULL;
      }
      agent.destroy();
      expect(instances.calls.map(({ call: { timeoutMs, waitedMs } }) => ({ timeoutMs, waitedMs }))).toEqual([
        { timeoutMs: 1000, waitedMs: WAIT_MS },
      ]);
      expect(frontend.requests.map(({ status }) => status)).toEqual([429, 200, 500]);
    });

    test.each([
      ['until its own timeout', '100', 100],
      ['not at all with an invalid timeout', 'soon', 0],
    ])('an early repeat waits %s', async (_how, timeout, waitMs) => {
      await using frontend = testFrontend();
      const { send, oneMore, agent } = await refusedCaller(frontend);
      const status = send({ headers: { 'x-invoke-timeout-ms': timeout } });
      await oneMore();
      vi.advanceTimersByTime(waitMs);
      expect(await status).toBe(429);
      agent.destroy();
    });

    test('an early repeat is counted when its client disconnects during the delay', async () => {
      await using frontend = testFrontend();
      const { send, oneMore, agent } = await refusedCaller(frontend);
      const status = send().catch(() => 'left');
      await oneMore();
      agent.destroy();
      expect(await status).toBe('left');
      vi.advanceTimersByTime(WAIT_MS);
      while (frontend.requests.length < 2) await setImmediate();
      expect(frontend.outcomes).toEqual(['resource_exhausted', 'resource_exhausted']);
    });

    test('an early repeat is answered before the service stops', async () => {
      const frontend = testFrontend();
      const { send, oneMore, agent } = await refusedCaller(frontend);
      const status = send();
      await oneMore();
      const closed = frontend[Symbol.asyncDispose]();
      vi.advanceTimersByTime(WAIT_MS);
      expect(await status).toBe(429);
      vi.useRealTimers();
      await closed;
      agent.destroy();
    });
  });

  test('a 429 answer contains Retry-After', async () => {
    await using frontend = testFrontend();
    frontend.instances.put(AGENT);
    frontend.instances.onInvoke = () =>
      Promise.reject(resourceExhausted('too many calls wait', { retryAfterSeconds: 3 }));
    const answer = await overSocket(await frontend.listen(), {});
    expect(answer).toMatchObject({ status: 429, headers: { 'retry-after': '3' } });
    expect(JSON.parse(answer.text)).toEqual({ code: 429, message: 'invoke failed: too many calls wait' });
  });
});

test.each<[string, Asked, number]>([
  ['a body of unknown length', { headers: { 'transfer-encoding': 'chunked' } }, 200],
  ['an escaped path', { path: PATH.replace('/api/agent/', '/api/agent/%20') }, 404],
  ['a query', { path: `${PATH}?a=1` }, 200],
  ['a body above the limit', { body: `"${'x'.repeat(6 * 1024 * 1024)}"` }, 413],
  ['another route', { path: `/api/agent/${AGENT.id}/nothing` }, 404],
])('the router, not the fast path, handles %s', async (_title, asked, status) => {
  await using frontend = testFrontend();
  frontend.instances.put(AGENT);
  frontend.instances.onInvoke = call => ({ ok: true, data: call.body, runMicros: 1 });
  const url = await frontend.listen();
  const tryServe = vi.spyOn(frontend.app.fastPath, 'tryServe');
  expect((await overSocket(url, asked)).status).toBe(status);
  expect(tryServe.mock.results.map(({ value }) => value)).toEqual([false]);
});

test('a client that disconnects before its whole body arrives starts no call', async () => {
  await using frontend = testFrontend();
  frontend.instances.put(AGENT);
  const url = await frontend.listen();
  const arrived = vi.spyOn(frontend.app.fastPath, 'tryServe');
  const request = http.request(`${url}${PATH}`, { method: 'POST', headers: { 'content-length': '100' } });
  request.on('error', () => undefined);
  request.write('{"a":');
  await vi.waitFor(() => expect(arrived).toHaveBeenCalled());
  const closed = new Promise(resolve => request.once('close', resolve));
  request.destroy();
  await closed;
  await frontend.app.close();
  expect(frontend.instances.calls).toEqual([]);
});
