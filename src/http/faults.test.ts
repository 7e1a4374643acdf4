import http from 'node:http';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { SPEC, type TestFrontend, testFrontend } from '../../test/http/frontend.ts';
import { newInstance } from '../../test/http/memory-instances.ts';
import { ServiceError } from '../core/error.ts';
import { headerText, retryAfter } from './answer.ts';

const AGENT = newInstance(SPEC);
const INVOKE = `/api/agent/${AGENT.id}/invoke`;

function post(url: string, path = INVOKE, headers: http.OutgoingHttpHeaders = {}) {
  return new Promise<{ status: number; text: string; headers: http.IncomingHttpHeaders }>((resolve, reject) => {
    const request = http.request(`${url}${path}`, { method: 'POST', headers, agent: false }, response => {
      let text = '';
      response.setEncoding('utf8').on('data', chunk => {
        text += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text, headers: response.headers }));
    });
    request.on('error', reject);
    request.end('{}');
  });
}

/** Errors that no code caught. The listeners below keep such an error from ending the test process. */
const escaped: unknown[] = [];
const keep = (error: unknown) => void escaped.push(error);

beforeEach(() => {
  escaped.length = 0;
  process.on('uncaughtException', keep).on('unhandledRejection', keep);
});

afterEach(() => {
  process.off('uncaughtException', keep).off('unhandledRejection', keep);
});

/**
 * Checks that the service still answers.
 * With `counted`, also checks that the fault is logged with its trace id and counted once.
 */
async function lives(frontend: TestFrontend, url: string, counted: boolean): Promise<void> {
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  expect(escaped).toEqual([]);
  if (!counted) return;
  expect(frontend.lines.filter(({ level }) => level === 'uncaught')).toHaveLength(1);
  expect(frontend.lines).toContainEqual(
    expect.objectContaining({ level: 'error', fields: expect.objectContaining({ traceId: 't-1' }) }),
  );
}

describe('a fault on one request’s way fails that request only', () => {
  test.each<[string, (frontend: TestFrontend) => void]>([
    [
      'a check before the body',
      ({ instances }) =>
        (instances.refusal = () => {
          throw new TypeError('boom');
        }),
    ],
    [
      'the handler',
      ({ instances }) =>
        (instances.invoke = () => {
          throw new TypeError('boom');
        }),
    ],
    ['an outcome without data', ({ instances }) => (instances.onInvoke = async () => ({ ok: true }) as never)],
    ['an outcome null', ({ instances }) => (instances.onInvoke = async () => null as never)],
    [
      'an outcome whose code cannot become a text',
      ({ instances }) =>
        (instances.onInvoke = async () => ({ ok: false, code: Object.create(null), text: 'x' }) as never),
    ],
  ])('a fault in a request fails only this request: %s', async (_, breakIt) => {
    await using frontend = testFrontend();
    frontend.instances.put(AGENT);
    breakIt(frontend);
    const url = await frontend.listen();
    const answer = await post(url, INVOKE, { 'x-trace-id': 't-1' });
    expect(answer.status).toBe(500);
    expect(answer.text).toContain('t-1');
    expect(answer.text).not.toContain('boom');
    await lives(frontend, url, true);
  });

  test.each<[string, string]>([
    ['by the fast path', INVOKE],
    ['by the router', '/api/agent'],
  ])('a token check that rejects with any value fails that request only: %s', async (_, path) => {
    await using frontend = testFrontend({
      auth: { known: () => undefined, verify: () => Promise.reject(Object.create(null)) },
    });
    frontend.instances.put(AGENT);
    const url = await frontend.listen();
    const answer = await post(url, path, { 'x-auth': 'x', 'x-trace-id': 't-1' });
    expect(answer.status).toBe(500);
    await lives(frontend, url, false);
  });

  test.each<[string, string]>([
    ['by the fast path', INVOKE],
    ['by the router', '/api/agent'],
  ])('a token check that returns no identity fails that request only: %s', async (_, path) => {
    await using frontend = testFrontend({
      auth: { known: () => undefined, verify: async () => null as never },
    });
    const url = await frontend.listen();
    expect((await post(url, path, { 'x-auth': 'x' })).status).toBe(500);
    await lives(frontend, url, false);
  });

  test('an answer that throws does not delay the others of its turn', async () => {
    await using frontend = testFrontend();
    frontend.instances.put(AGENT);
    const release: (() => void)[] = [];
    frontend.instances.onInvoke = () =>
      new Promise(resolve => release.push(() => resolve({ ok: true, data: Buffer.from('1'), runMicros: 1 })));
    frontend.app.server.prependListener('request', (request, response) => {
      if (request.headers['x-bad'] === undefined) return;
      response.end = () => {
        throw new TypeError('boom');
      };
    });
    const url = await frontend.listen();
    const bad = post(url, INVOKE, { 'x-bad': '1', 'x-trace-id': 't-1' }).catch(() => 'broken off');
    const good = [post(url), post(url)];
    await vi.waitFor(() => expect(release).toHaveLength(3), 20_000);
    for (const each of release) each();
    expect((await Promise.all(good)).map(({ status }) => status)).toEqual([200, 200]);
    expect(await bad).toBe('broken off');
    await lives(frontend, url, true);
  });

  test('a fault in the counting of requests fails no request', async () => {
    await using frontend = testFrontend({
      metrics: {
        observeRequest: () => {
          throw new TypeError('boom');
        },
        uncaught() {},
        render: async () => ({ contentType: 'text/plain', body: '' }),
      },
    });
    frontend.instances.put(AGENT);
    const url = await frontend.listen();
    expect((await post(url)).status).toBe(200);
    expect((await fetch(`${url}/api/agent`)).status).toBe(200);
    await lives(frontend, url, false);
  });

  test('a log that fails midway breaks only its own answer', async () => {
    await using frontend = testFrontend();
    frontend.instances.put(AGENT);
    frontend.instances.onLogs = async function* () {
      yield null as never;
    } as never;
    const url = await frontend.listen();
    await expect(fetch(`${url}/api/agent/${AGENT.id}/logs`).then(answer => answer.text())).rejects.toThrow();
    await lives(frontend, url, false);
  });
});

describe('texts from data cannot break an answer', () => {
  test.each(['constructor', '__proto__', 'toString', 'nobody-knows', 4002.5, null])(
    'an error with the code %j is a 500',
    async code => {
      await using frontend = testFrontend();
      frontend.instances.put(AGENT);
      frontend.instances.invoke = () => Promise.reject(new ServiceError(code as never, 'of a sandbox'));
      frontend.instances.get = () => Promise.reject(new ServiceError(code as never, 'of a sandbox'));
      const url = await frontend.listen();
      expect((await post(url)).status).toBe(500);
      expect((await fetch(`${url}/api/agent/${AGENT.id}`)).status).toBe(500);
      await lives(frontend, url, false);
    },
  );

  test.each([Number.NaN, -1, 0.2, Number.POSITIVE_INFINITY, '1\r\nX-Own: 1', {}])(
    'Retry-After of %j is a whole number of seconds',
    async seconds => {
      await using frontend = testFrontend();
      frontend.instances.put(AGENT);
      const error = new ServiceError('resource_exhausted', 'full', { retryAfterSeconds: seconds as number });
      frontend.instances.invoke = () => Promise.reject(error);
      frontend.instances.get = () => Promise.reject(error);
      const url = await frontend.listen();
      const answers = [await post(url), await fetch(`${url}/api/agent/${AGENT.id}`)];
      expect(answers.map(({ status }) => status)).toEqual([429, 429]);
      expect(answers[0]).toMatchObject({ headers: { 'retry-after': '1' } });
      expect((answers[1] as Response).headers.get('retry-after')).toBe('1');
      await lives(frontend, url, false);
    },
  );

  test.each([
    ['4002\r\nX-Own: 1', '4002??X-Own: 1'],
    ['a\0b\u007f', 'a?b?'],
    ['Straße', 'Straße'],
    ['日本', '??'],
    [4002, '4002'],
    [undefined, 'undefined'],
  ])('headerText turns %j into the header %j', (value, text) => {
    expect(headerText(value)).toBe(text);
    const response = new http.ServerResponse(new http.IncomingMessage(null as never));
    expect(() => response.writeHead(200, ['X-Any', headerText(value)])).not.toThrow();
  });

  test('Retry-After is at least a second and at most a day', () => {
    expect([undefined, 1, 1.2, 86_400, 86_401].map(retryAfter)).toEqual(['1', '1', '2', '86400', '1']);
  });
});
