import { EventEmitter, once } from 'node:events';
import type { Server } from 'node:http';
import net from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { deferred } from '../../../test/http/deferred.ts';
import { SPEC, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { metaErrors } from '../../api/registry/requests.ts';
import { LIMITS } from '../../core/limits.ts';
import { createLocalTokenVerifier } from '../access/credentials.ts';
import { createEntry } from '../entry.ts';
import { addressGroup, Connections } from './connections.ts';

async function connect(url: string): Promise<net.Socket> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  await once(socket, 'connect');
  return socket;
}

test('a connection that never sent a request does not delay a close', async () => {
  const frontend = testFrontend();
  const url = await frontend.listen();
  const accepted = once(frontend.app.server, 'connection');
  const socket = await connect(url);
  await accepted;
  const ended = once(socket.resume(), 'close');
  await frontend.app.close();
  await ended;
});

test('a kept connection does not delay a close', async () => {
  const frontend = testFrontend();
  const socket = await connect(await frontend.listen());
  socket.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await once(socket, 'data');
  const ended = once(socket, 'close');
  await frontend.app.close();
  await ended;
});

test('a running request is answered, then its connection ends', async () => {
  const frontend = testFrontend();
  const { id } = frontend.instances.put(newInstance(SPEC));
  const started = deferred();
  const finish = deferred();
  frontend.instances.onInvoke = async call => {
    started.resolve();
    await finish.promise;
    return { ok: true, data: call.body, runMicros: 1 };
  };
  const socket = await connect(await frontend.listen());
  let received = '';
  socket.on('data', chunk => {
    received += chunk;
  });
  const ended = once(socket, 'close');
  socket.write(`POST /api/agent/${id}/invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n7`);
  await started.promise;
  const closed = frontend.app.close();
  finish.resolve();
  await Promise.all([closed, ended]);
  expect(received).toContain('{"code":200,"data":7,"message":""}');
});

test('an entry runs one request of a connection at a time, and closes the connection if too many wait', async () => {
  await using frontend = testFrontend();
  const agent = frontend.instances.put(newInstance(SPEC));
  const release: (() => void)[] = [];
  frontend.instances.onInvoke = () =>
    new Promise(resolve => release.push(() => resolve({ ok: true, data: Buffer.from('1'), runMicros: 1 })));
  const url = await frontend.listen();
  const request = `POST /api/agent/${agent.id}/invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}`;

  const good = await connect(url);
  let text = '';
  good.setEncoding('latin1').on('data', (chunk: string) => {
    text += chunk;
  });
  const count = 5;
  good.write(request.repeat(count));
  for (let answered = 0; answered < count; answered += 1) {
    await vi.waitFor(() => expect(release).toHaveLength(1), 20_000);
    expect(text.match(/HTTP\/1.1 200/g) ?? []).toHaveLength(answered);
    expect(frontend.instances.calls).toHaveLength(answered + 1);
    release.pop()?.();
    await vi.waitFor(() => expect(text.match(/HTTP\/1.1 200/g)).toHaveLength(answered + 1), 20_000);
  }
  good.destroy();

  const greedy = await connect(url);
  greedy.on('error', () => undefined);
  const list = `GET /api/agent/${agent.id} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
  greedy.write(request + list.repeat(LIMITS.pipelinedRequests + 1));
  await once(greedy.resume(), 'close');
});

test('an entry answers waiting requests in order when the service ends', async () => {
  const frontend = testFrontend();
  const { id } = frontend.instances.put(newInstance(SPEC));
  const [begun, finish] = [deferred(), deferred()];
  frontend.instances.onInvoke = async call => {
    begun.resolve();
    await finish.promise;
    return { ok: true, data: Buffer.from(`"answer ${call.body}"`), runMicros: 1 };
  };
  const socket = await connect(await frontend.listen());
  let received = '';
  socket.on('data', chunk => {
    received += chunk;
  });
  const ended = once(socket, 'close');
  const request = (body: number) =>
    `POST /api/agent/${id}/invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n${body}`;
  socket.write(request(0) + request(1));
  await begun.promise;
  const closed = frontend.app.close();
  for (let turns = 0; turns < 10; turns += 1) await turn();
  expect(socket.closed).toBe(false);
  finish.resolve();
  await Promise.all([closed, ended]);
  expect([...received.matchAll(/"data":"([^"]*)"/g)].map(([, data]) => data)).toEqual(['answer 0', 'answer 1']);
});

test('a request that was sent ahead and has not begun is answered when the service ends meanwhile', async () => {
  const frontend = testFrontend();
  const { id } = frontend.instances.put(newInstance(SPEC));
  const finish = deferred();
  frontend.instances.onInvoke = async () => {
    await finish.promise;
    return { ok: true, data: Buffer.from('7'), runMicros: 1 };
  };
  const socket = await connect(await frontend.listen());
  let received = '';
  socket.on('data', chunk => {
    received += chunk;
  });
  const ended = once(socket, 'close');
  const call = `POST /api/agent/${id}/invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n7`;
  socket.write(`${call}GET /api/agent/${id} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  await vi.waitFor(() => expect(frontend.instances.calls).toHaveLength(1), 20_000);
  const closed = frontend.app.close();
  for (let turns = 0; turns < 10; turns += 1) await turn();
  expect(received).toBe('');
  finish.resolve();
  await Promise.all([closed, ended]);
  expect(received.match(/HTTP\/1.1 200/g)).toHaveLength(2);
  expect(frontend.requests.map(({ method }) => method)).toEqual(['POST', 'GET']);
});

test('an entry runs no waiting request of a client that disconnected', async () => {
  await using frontend = testFrontend();
  const { id } = frontend.instances.put(newInstance(SPEC));
  const [begun, left] = [deferred(), deferred()];
  frontend.instances.onInvoke = async ({ signal, body }) => {
    signal?.addEventListener('abort', () => left.resolve());
    begun.resolve();
    await left.promise;
    return { ok: true, data: body, runMicros: 1 };
  };
  const socket = await connect(await frontend.listen());
  const call = `POST /api/agent/${id}/invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n7`;
  socket.write(call.repeat(2));
  await begun.promise;
  socket.destroy();
  await left.promise;
  for (let turns = 0; turns < 10; turns += 1) await turn();
  expect(frontend.instances.calls).toHaveLength(1);
});

/** Emits connections from addresses that the test machine does not have. */
function arrivals(maxOfAddress: number) {
  const server = new EventEmitter();
  const connections = new Connections(server as Server, maxOfAddress);
  const arrive = (remoteAddress: string) => {
    const socket = new net.Socket();
    Object.defineProperty(socket, 'remoteAddress', { value: remoteAddress });
    server.emit('connection', socket);
    return socket;
  };
  return { connections, arrive };
}

test('connections of one remote address above its share are closed, and an end frees one', async () => {
  const { connections, arrive } = arrivals(2);
  const first = arrive('192.0.2.1');
  expect(arrive('192.0.2.1').destroyed).toBe(false);
  expect(arrive('::ffff:192.0.2.1').destroyed).toBe(true);
  expect(arrive('192.0.2.2').destroyed).toBe(false);
  expect([...connections.open()]).toHaveLength(3);
  const ended = once(first, 'close');
  first.destroy();
  await ended;
  expect(arrive('192.0.2.1').destroyed).toBe(false);
  expect(arrive('192.0.2.1').destroyed).toBe(true);
  for (const each of connections.open()) each.destroy();
});

test('addresses of one IPv6 network share a limit, and loopback has no limit because of proxies', () => {
  const { connections, arrive } = arrivals(1);
  expect(arrive('2001:db8::1').destroyed).toBe(false);
  expect(arrive('2001:db8::2').destroyed).toBe(true);
  expect(arrive('2001:db8:0:1::1').destroyed).toBe(false);
  for (let count = 0; count < 5; count++) expect(arrive('127.0.0.1').destroyed).toBe(false);
  for (const each of connections.open()) each.destroy();
});

test.each([['127.0.0.1'], ['127.8.9.10'], ['::1'], ['::ffff:127.0.0.1'], [undefined]])(
  'addressGroup returns null for loopback and for a closed connection: %s',
  address => {
    expect(addressGroup(address)).toBeNull();
  },
);

test.each([
  ['192.0.2.7', '::ffff:192.0.2.7'],
  ['2001:db8:1:2::1', '2001:db8:1:2:ffff:0:0:9'],
  ['2001:db8::1', '2001:db8:0:0:5::'],
  ['fe80::1%eth0', 'fe80::2'],
])('addressGroup puts %s and %s into the same group', (one, other) => {
  expect(addressGroup(one)).not.toBeNull();
  expect(addressGroup(one)).toBe(addressGroup(other));
});

test.each([
  ['192.0.2.7', '192.0.2.8'],
  ['2001:db8:1:2::1', '2001:db8:1:3::1'],
  ['2001:db8::1', '2001:db8:0:1::1'],
])('addressGroup puts %s and %s into different groups', (one, other) => {
  expect(addressGroup(one)).not.toBe(addressGroup(other));
});

/** Sends an upgrade request; resolves with all received text when the server ends the connection. */
function upgrade(
  url: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  method = 'GET',
  body = '',
): Promise<string> {
  return new Promise((resolve, reject) => {
    const all = { Host: 'localhost', Connection: 'Upgrade', Upgrade: 'websocket', ...WEB_SOCKET, ...headers };
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
    const socket = net.connect({ port: Number(new URL(url).port), host: '127.0.0.1', allowHalfOpen: true });
    let said = '';
    socket.on('data', chunk => {
      said += chunk;
    });
    socket.once('end', () => {
      socket.destroy();
      resolve(said);
    });
    socket.once('error', reject);
    socket.write(`${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body}`);
  });
}

const WEB_SOCKET = { 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': Buffer.alloc(16).toString('base64') };
const TERMINAL = '/api/agent/none/exec';

test.each([
  ['without a token', 401, TERMINAL, {}, true],
  ['of another site', 403, TERMINAL, { Origin: 'http://elsewhere.example' }, false],
  ['under another name', 421, TERMINAL, { Host: 'elsewhere.example' }, false],
  ['to no route', 404, '/nothing', {}, false],
  ['to an address without an agent', 404, '/', { Host: 'none--default.localhost' }, false],
] as const)('an upgrade %s is answered %i, then the server closes', async (_, status, path, headers, hasTokens) => {
  await using frontend = testFrontend({ auth: hasTokens ? createLocalTokenVerifier('t'.repeat(43)) : null });
  const said = await upgrade(await frontend.listen(), path, headers);
  expect(said).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
  expect(said.toLowerCase()).toContain('connection: close');
});

test.each([
  ['a WebSocket', {}],
  ['HTTP/2', { Connection: 'Upgrade, HTTP2-Settings', Upgrade: 'h2c', 'HTTP2-Settings': '' }],
])('a request to a plain route gets the normal answer when its Upgrade header asks for %s', async (_, headers) => {
  await using frontend = testFrontend();
  const said = await upgrade(await frontend.listen(), '/api/agent', headers);
  expect(said).toMatch(/^HTTP\/1.1 200 /);
  expect(said.toLowerCase()).toContain('connection: close');
  expect(JSON.parse(said.split('\r\n\r\n')[1] ?? '')).toMatchObject({ instances: [] });
});

test('a request with both an upgrade and a body is answered 400 with the reason', async () => {
  await using frontend = testFrontend();
  const body = '{"namespace":"a"}';
  const headers = { 'Content-Type': 'application/json', 'Content-Length': String(body.length) };
  const said = await upgrade(await frontend.listen(), '/api/agent', headers, 'POST', body);
  expect(said).toMatch(/^HTTP\/1.1 400 /);
  expect(said).toContain('a request that asks for an upgrade must not have a body');
});

test('the meta_service, which has no upgrade routes, ignores an Upgrade header', async () => {
  const app = createEntry({
    ...{ name: 'meta_service', title: '', wrongRequestCode: 400, errors: metaErrors },
    ...{
      version: '0',
      hosts: { boundHost: '127.0.0.1', allowedHosts: [] },
      auth: null,
      ready: () => ({}),
      slowMs: 1e6,
    },
    metrics: {
      observeRequest: () => undefined,
      uncaught: () => undefined,
      render: async () => ({ contentType: 'text/plain', body: '' }),
    },
    log: { info: () => undefined, warn: () => undefined, error: () => undefined },
  });
  try {
    const url = await app.listen({ host: '127.0.0.1', port: 0 });
    const socket = net.connect({ port: Number(new URL(url).port), host: '127.0.0.1' });
    socket.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
    const [said] = await once(socket, 'data');
    expect(String(said)).toMatch(/^HTTP\/1.1 200 /);
    socket.destroy();
  } finally {
    await app.close();
  }
});
