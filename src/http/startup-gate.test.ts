import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterEach, expect, test, vi } from 'vitest';
import { testFrontend } from '../../test/http/frontend.ts';
import { StartupGate } from './startup-gate.ts';

const LONG = { waitMs: 60_000, maxWaiting: 10 };
let server: Server | undefined;

afterEach(async () => {
  server?.closeAllConnections();
  await new Promise(resolve => (server === undefined ? resolve(undefined) : server.close(resolve)));
  server = undefined;
});

/** Starts a server behind a StartupGate; the server echoes request bodies. */
async function behind(options: ConstructorParameters<typeof StartupGate>[1]) {
  const seen: string[] = [];
  server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    seen.push(`${request.url}`);
    response.end(Buffer.concat(chunks));
  });
  server.on('upgrade', (_request, socket) => {
    seen.push('upgrade');
    socket.end('HTTP/1.1 101 Switching Protocols\r\n\r\n');
  });
  const gate = new StartupGate(server, options);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { gate, seen, port, url: `http://127.0.0.1:${port}` };
}

test('StartupGate answers health checks during the start; other requests wait and pass whole after open()', async () => {
  const { gate, seen, url } = await behind(LONG);
  for (const path of ['/healthz', '/readyz?x=1', '/metrics']) expect((await fetch(`${url}${path}`)).status).toBe(200);
  const body = 'x'.repeat(300_000);
  const waiting = Promise.all([fetch(`${url}/a`, { method: 'POST', body }), fetch(`${url}/b`)]);
  // This health check uses its own connection. Its answer shows that both requests have arrived and wait.
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  expect(seen.filter(path => path === '/a' || path === '/b')).toEqual([]);
  gate.open();
  const [first, second] = await waiting;
  expect([first.status, (await first.text()).length, second.status]).toEqual([200, body.length, 200]);
  expect(Object.hasOwn(server as Server, 'emit')).toBe(false);
});

test('StartupGate answers 503 with Retry-After when a request waits too long or too many requests wait', async () => {
  const late = await behind({ waitMs: 1, maxWaiting: 10 });
  const answer = await fetch(`${late.url}/api/agent`, { method: 'POST', body: '{}' });
  expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '1']);
  expect(await answer.json()).toMatchObject({ code: 503, message: expect.stringContaining('the server is starting') });
  server?.close();
  const full = await behind({ waitMs: 60_000, maxWaiting: 0 });
  expect((await fetch(`${full.url}/api/agent`)).status).toBe(503);
});

test('StartupGate answers 503 to a waiting WebSocket when the server stops before its start completes', async () => {
  const { gate, seen, port } = await behind(LONG);
  const socket = connect(port, '127.0.0.1');
  socket.write('GET /terminal HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
  let said = '';
  socket.on('data', chunk => {
    said += chunk;
  });
  const ended = once(socket, 'close');
  await vi.waitFor(() => {
    gate.refuseWaiting();
    expect(said).toMatch(/^HTTP\/1.1 503 .*Retry-After: 1\r\n/s);
  });
  await ended;
  expect(seen).toEqual([]);
});

test('StartupGate drops a waiting request when its client disconnects', async () => {
  const { gate, seen, url } = await behind(LONG);
  const leaving = new AbortController();
  const gone = fetch(`${url}/gone`, { signal: leaving.signal });
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  leaving.abort();
  await expect(gone).rejects.toThrow();
  const stays = fetch(`${url}/stays`);
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  gate.open();
  expect((await stays).status).toBe(200);
  expect(seen).not.toContain('/gone');
});

test('an entry answers only health checks before the start completes', async () => {
  let start!: () => void;
  const started = new Promise<void>(resolve => {
    start = resolve;
  });
  await using frontend = testFrontend({ started, ready: () => ({ server: 'starting' }) });
  const url = await frontend.listen();
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  expect(await (await fetch(`${url}/readyz`)).json()).toMatchObject({ components: { server: 'starting' } });
  const listed = fetch(`${url}/api/agent`);
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  expect(frontend.requests.map(({ route }) => route)).not.toContain('/api/agent');
  start();
  expect((await listed).status).toBe(200);
});
