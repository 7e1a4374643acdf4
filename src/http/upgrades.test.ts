import { once } from 'node:events';
import net from 'node:net';
import { expect, test } from 'vitest';
import { testFrontend } from '../../test/http/frontend.ts';
import { metaErrors } from '../api/registry/errors.ts';
import { createLocalTokenVerifier } from './access/local-token.ts';
import { createEntry } from './entry.ts';

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
  ['to an address of nothing', 404, '/', { Host: 'none--default.localhost' }, false],
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
