import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { deferred } from '../../test/http/deferred.ts';
import { SPEC, type TestFrontend, testFrontend } from '../../test/http/frontend.ts';
import { newInstance } from '../../test/http/memory-instances.ts';

const LONG = { waitMs: 60_000, maxWaiting: 10 };
let frontend: TestFrontend | undefined;

afterEach(async () => {
  frontend?.app.server.closeAllConnections();
  await frontend?.app.close();
  frontend = undefined;
});

/** Starts a frontend that has not started. */
async function starting(startupBounds = LONG) {
  const { promise: started, resolve: start } = deferred();
  frontend = testFrontend({ started, startupBounds, ready: () => ({ server: 'starting' }) });
  frontend.instances.onInvoke = async ({ body }) => ({ ok: true, data: body, runMicros: 1 });
  const { id } = frontend.instances.put(newInstance(SPEC));
  const url = await frontend.listen();
  const { port } = frontend.app.server.address() as AddressInfo;
  const isHealthy = async () => (await fetch(`${url}/healthz`)).status === 200;
  return { frontend, start, url, port, path: `/api/agent/${id}`, isHealthy };
}

test('an entry answers health checks during the start, and runs waiting calls and other requests completely afterwards', async () => {
  const { frontend, start, url, path, isHealthy } = await starting();
  const answer = await fetch(`${url}/readyz?x=1`);
  expect(await answer.json()).toMatchObject({ components: { server: 'starting' } });
  expect((await fetch(`${url}/metrics`)).status).toBe(200);
  const body = JSON.stringify('x'.repeat(300_000));
  const waiting = Promise.all([fetch(`${url}${path}/invoke`, { method: 'POST', body }), fetch(`${url}/api/agent`)]);
  // This health check uses its own connection. Its answer shows that both requests have arrived and wait.
  expect(await isHealthy()).toBe(true);
  expect(frontend.requests.map(({ route }) => route)).not.toContain('/api/agent');
  expect(frontend.instances.calls).toEqual([]);
  start();
  const [call, list] = await waiting;
  expect([call.status, (await call.text()).length > body.length, list.status]).toEqual([200, true, 200]);
});

test('an entry answers 503 with Retry-After when a request waits too long for the start', async () => {
  const { url } = await starting({ waitMs: 1, maxWaiting: 10 });
  const answer = await fetch(`${url}/api/agent`, { method: 'POST', body: '{}' });
  expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '1']);
  expect(answer.headers.get('connection')).toBe('close');
  expect(await answer.json()).toMatchObject({ code: 503, message: expect.stringContaining('the server is starting') });
});

test('an entry answers 503 when too many requests wait for the start', async () => {
  const { url } = await starting({ waitMs: 60_000, maxWaiting: 0 });
  expect((await fetch(`${url}/api/agent`)).status).toBe(503);
});

test('an entry answers 503 to a waiting WebSocket when the server stops before it has started', async () => {
  const { frontend, port, path, isHealthy } = await starting();
  const socket = connect(port, '127.0.0.1');
  const key = Buffer.alloc(16).toString('base64');
  const head = `Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}`;
  socket.write(`GET ${path}/exec HTTP/1.1\r\n${head}\r\n\r\n`);
  let text = '';
  socket.on('data', chunk => {
    text += chunk;
  });
  const ended = once(socket, 'close');
  expect(await isHealthy()).toBe(true);
  await frontend.app.close();
  await ended;
  expect(text).toMatch(/^HTTP\/1.1 503 .*Retry-After: 1\r\n/is);
});

test('an entry passes a WebSocket that waited for the start to its route', async () => {
  const { start, port, path, isHealthy } = await starting();
  const socket = connect(port, '127.0.0.1');
  const key = Buffer.alloc(16).toString('base64');
  const head = `Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}`;
  socket.write(`GET ${path}/exec HTTP/1.1\r\n${head}\r\n\r\n`);
  let text = '';
  socket.on('data', chunk => {
    text += chunk;
  });
  expect(await isHealthy()).toBe(true);
  expect(text).toBe('');
  start();
  await once(socket, 'close');
  expect(text).toContain('this test has no sandboxes');
});

test('an entry drops a request that waits for the start when its client disconnects', async () => {
  const { frontend, start, url, path, isHealthy } = await starting();
  const leaving = new AbortController();
  const left = fetch(`${url}${path}/invoke`, { method: 'POST', body: '1', signal: leaving.signal });
  expect(await isHealthy()).toBe(true);
  leaving.abort();
  await expect(left).rejects.toThrow();
  const stays = fetch(`${url}/api/agent`);
  expect(await isHealthy()).toBe(true);
  start();
  expect((await stays).status).toBe(200);
  expect(frontend.instances.calls).toEqual([]);
});
