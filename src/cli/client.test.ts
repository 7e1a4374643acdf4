import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { cli, json, StubService } from '../../test/parts/cli.ts';

const empty = () => StubService.start((_, response) => json(response, 200, { instances: [], next_cursor: null }));

test('the address comes from the flag, else from the environment, and needs no scheme', async () => {
  await using one = await empty();
  await using two = await empty();
  const environment = { ROOKERY_ADDRESS: one.address };
  await cli(['agent', 'list'], { environment });
  expect(one.seen).toHaveLength(1);
  await cli(['agent', 'list', '--address', two.address.replace('http://', '')], { environment });
  expect(one.seen).toHaveLength(1);
  expect(two.seen).toHaveLength(1);
});

test('a path in the address is kept: the service may stand behind a proxy', async () => {
  await using service = await empty();
  await cli(['agent', 'list', '--address', `${service.address}/rookery/`]);
  expect(service.last.url).toMatch(/^\/rookery\/api\/agent\?/);
});

test('token and tenant are sent when they are given', async () => {
  await using service = await empty();
  const list = ['agent', 'list', '--address', service.address];
  await cli(list);
  expect(service.last.headers.authorization).toBeUndefined();
  expect(service.last.headers['x-tenant-id']).toBeUndefined();
  await cli([...list, '--token', 'a.b.c', '--tenant', 't1']);
  expect(service.last.headers).toMatchObject({ authorization: 'Bearer a.b.c', 'x-tenant-id': 't1' });
  await cli(list, { environment: { ROOKERY_TOKEN: 'd.e.f', ROOKERY_TENANT: 't2' } });
  expect(service.last.headers).toMatchObject({ authorization: 'Bearer d.e.f', 'x-tenant-id': 't2' });
});

test('a token from a file, without its newline; the flag wins over the environment', async () => {
  await using service = await empty();
  const dir = mkdtempSync(join(tmpdir(), 'rookery-cli-'));
  try {
    writeFileSync(join(dir, 'token'), 'x.y.z\n');
    const args = ['agent', 'list', '--address', service.address, '--token-file', join(dir, 'token')];
    await cli(args, { environment: { ROOKERY_TOKEN: 'other' } });
    expect(service.last.headers.authorization).toBe('Bearer x.y.z');
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test('the token of a local service is found in its data directory, and any other goes before it', async () => {
  await using service = await empty();
  const dir = mkdtempSync(join(tmpdir(), 'rookery-cli-'));
  try {
    writeFileSync(join(dir, 'local-token'), 'l-o_c4l\n');
    const list = ['agent', 'list', '--address', service.address];
    const sent = async (args: readonly string[], environment: Readonly<Record<string, string>> = {}) => {
      await cli([...list, ...args], { environment });
      return service.last.headers.authorization;
    };
    expect(await sent(['--data-dir', dir])).toBe('Bearer l-o_c4l');
    expect(await sent([], { ROOKERY_DATA_DIR: dir })).toBe('Bearer l-o_c4l');
    expect(await sent(['--data-dir', join(dir, 'none')], { ROOKERY_DATA_DIR: dir })).toBeUndefined();
    expect(await sent(['--token', 'a.b.c', '--data-dir', dir])).toBe('Bearer a.b.c');
    // Not to another machine, nor to a name that may be one.
    const elsewhere = await cli(['agent', 'list', '--address', 'http://service.invalid', '--data-dir', dir]);
    expect(elsewhere.code).toBe(69);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test('nothing listens: exit code 69, and what to do', async () => {
  const server = createServer();
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise(resolve => server.close(resolve));
  const ran = await cli(['agent', 'list', '--address', `http://127.0.0.1:${port}`]);
  expect(ran.code).toBe(69);
  expect(ran.err).toBe(
    `The frontend at http://127.0.0.1:${port} cannot be reached: nothing listens there. Start the service with "rookery serve", or say where it is with --address.\n`,
  );
});

test('a service that hangs up has been reached, and may have done what was asked: exit code 69', async () => {
  await using service = await StubService.start((_, response) => response.destroy());
  const gone = `The frontend at ${service.address} gave no answer (socket hang up).`;
  const list = await cli(['agent', 'list', '--address', service.address]);
  expect(list).toMatchObject({ code: 69, err: `${gone}\n` });
  const restart = ['agent', 'restart', '11111111-1111-1111-1111-111111111111', '--address', service.address];
  const why = `${gone} It may have done what it was asked for: look before you ask again.\n`;
  expect(await cli(restart)).toMatchObject({ code: 69, err: why });
});

test.each([
  ['x-tenant-id', ['agent', 'list', '--tenant', 'a\nb']],
  ['x-trace-id', ['agent', 'invoke', '11111111-1111-1111-1111-111111111111', '--trace-id', '\u4e2d']],
])('what no header can have is a mistake in the command: %s', async (name, args) => {
  await using service = await empty();
  const { code, err } = await cli([...args, '--address', service.address]);
  expect({ code, seen: service.seen }).toEqual({ code: 2, seen: [] });
  expect(err).toContain(`cannot be sent as ${name}: it has characters that no header has.`);
});

test.each([
  [
    401,
    'authentication failed: the token has expired',
    77,
    'authentication failed: the token has expired. Give a token',
  ],
  [403, 'tenant differs', 77, 'tenant differs'],
  [404, 'instance not found: x', 1, 'instance not found: x'],
  [429, 'invoke failed: too many calls are waiting', 1, 'too many calls are waiting'],
  [500, 'failed to create agent: no room', 1, 'failed to create agent: no room'],
])('an answer of %i with a message: exit code %3$i', async (status, message, code, sentence) => {
  await using service = await StubService.start((_, response) => json(response, status, { code: status, message }));
  const ran = await cli(['agent', 'list', '--address', service.address]);
  expect(ran.code).toBe(code);
  expect(ran.err).toContain(sentence);
});

test.each([
  [502, '<html>Bad gateway</html>', 'the service answered 502: <html>Bad gateway</html>'],
  [200, 'welcome', 'The service answered with something that is not a JSON object: welcome'],
])('an answer of %i that is not of this service is shown', async (status, text, sentence) => {
  await using service = await StubService.start((_, response) => response.writeHead(status).end(text));
  const ran = await cli(['agent', 'list', '--address', service.address]);
  expect(ran).toMatchObject({ code: 1, err: `${sentence}\n` });
});

test.each([
  [['--address', 'ftp://x'], '--address must be a URL such as http://127.0.0.1:8888'],
  [['--address', 'http://'], '--address must be a URL'],
  [['--token', 'two words'], 'What --token has is not a token'],
  [['--token-file', '/nowhere'], 'The token file /nowhere cannot be read'],
  [['--limit', '0'], '--limit must be a whole number from 1'],
])('%j is a mistake: exit code 2', async (args, sentence) => {
  const ran = await cli(['agent', 'list', ...args]);
  expect(ran.code).toBe(2);
  expect(ran.err).toContain(sentence);
});

test('frames that a service sends together with its handshake are heard', async () => {
  const server = createHttpServer();
  const frame = (opcode: number, payload: Buffer) =>
    Buffer.concat([Buffer.from([0x80 | opcode, payload.length]), payload]);
  server.on('upgrade', (request, socket) => {
    const key = `${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
    const accept = createHash('sha1').update(key).digest('base64');
    const head = `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`;
    const output = frame(2, Buffer.from('\x01abc'));
    const exit = frame(1, Buffer.from('{"type":"exit","returncode":9}'));
    socket.write(Buffer.concat([Buffer.from(head), output, exit, frame(8, Buffer.from([0x03, 0xe8]))]));
    socket.on('error', () => undefined).on('data', () => socket.end());
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  try {
    const id = '11111111-2222-4333-8444-555555555555';
    const ran = await cli(['agent', 'shell', id, '--address', `http://127.0.0.1:${port}`, '--', 'true']);
    expect(ran).toMatchObject({ code: 9, out: 'abc' });
  } finally {
    await new Promise(resolve => server.close(resolve));
  }
});

test('an asynchronous call that is waited for has told its id before the service goes away', async () => {
  await using service = await StubService.start(({ method }, response) => {
    if (method === 'POST') json(response, 202, { requestId: 'r-1' });
    else response.destroy();
  });
  const args = ['function', 'invoke', 'sn:cn:yrk:default:function:0@default@f:v1', '--async', '--wait'];
  const { code, out, err } = await cli([...args, '--address', service.address]);
  expect({ code, out, told: err.split('\n')[0] }).toEqual({ code: 69, out: '', told: 'r-1' });
});
