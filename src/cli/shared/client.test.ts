import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { cli, json, StubService } from '../../../test/parts/cli.ts';
import { adviceOnHidden, Client, findHiddenToken } from './client.ts';

const NOWHERE = { write: () => true, drained: async () => {}, isTerminal: false, columns: 80 };

const empty = () => StubService.start((_, response) => json(response, 200, { instances: [], next_cursor: null }));

test('the address is read from the flag, then from the environment, and may lack a scheme', async () => {
  await using one = await empty();
  await using two = await empty();
  const environment = { ROOKERY_ADDRESS: one.address };
  await cli(['agent', 'list'], { environment });
  expect(one.seen).toHaveLength(1);
  await cli(['agent', 'list', '--address', two.address.replace('http://', '')], { environment });
  expect(one.seen).toHaveLength(1);
  expect(two.seen).toHaveLength(1);
});

test('a path in the address is kept, so that a proxy may be in front of the service', async () => {
  await using service = await empty();
  await cli(['agent', 'list', '--address', `${service.address}/rookery/`]);
  expect(service.last.url).toMatch(/^\/rookery\/api\/agent\?/);
});

test('a frontend that is named alone answers for its meta_service', async () => {
  await using one = await StubService.start((_, response) =>
    json(response, 200, { code: 0, result: { functions: [] } }),
  );
  await using two = await StubService.start((_, response) =>
    json(response, 404, { message: 'route not found: GET /api/meta/serverless/v1/functions' }),
  );
  const list = ['function', 'list'];
  expect(await cli([...list, '--address', `${one.address}/rookery/`])).toMatchObject({ code: 0 });
  expect(one.last.url).toMatch(/^\/rookery\/api\/meta\/serverless\/v1\/functions\?/);
  expect(await cli(list, { environment: { ROOKERY_ADDRESS: one.address } })).toMatchObject({ code: 0 });
  expect(one.last.url).toMatch(/^\/api\/meta\/serverless\/v1\/functions\?/);
  const environment = { ROOKERY_META_ADDRESS: one.address };
  expect(await cli([...list, '--address', two.address], { environment })).toMatchObject({ code: 0 });
  expect(one.last.url).toMatch(/^\/serverless\/v1\/functions\?/);
  expect(two.seen).toEqual([]);
  const without = await cli([...list, '--address', two.address]);
  expect(without).toMatchObject({ code: 1, err: expect.stringContaining('say where it is with --meta-address') });
});

test('token and tenant are sent only when they are given', async () => {
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

test('--token-file is read without its newline, and has priority over the environment', async () => {
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

test('the local token is read from the data directory, and every other token has priority', async () => {
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
    // The token is not sent to another machine, nor to a host name, which may be another machine.
    const elsewhere = await cli(['agent', 'list', '--address', 'http://service.invalid', '--data-dir', dir]);
    expect(elsewhere.code).toBe(69);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test('a command ends with exit code 69 and the next step when no service listens', async () => {
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

test('an address without an HTTP server, TLS server or known host is named as such, with the next step', async () => {
  const server = createServer(socket =>
    socket
      .on('error', () => {})
      .resume()
      .end('SSH-2.0-OpenSSH_9.2\r\n'),
  );
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const plain = await cli(['agent', 'list', '--address', `http://127.0.0.1:${port}`]);
  expect(plain).toMatchObject({ code: 69, err: expect.stringContaining('is not an HTTP server') });
  expect(plain.err).toContain('--address');
  const tls = await cli(['agent', 'list', '--address', `https://127.0.0.1:${port}`]);
  expect(tls).toMatchObject({ code: 69, err: expect.stringContaining('it does not speak TLS (https://)') });
  await new Promise(resolve => server.close(resolve));
  const unknown = await cli(['agent', 'list', '--address', 'http://nowhere.invalid']);
  expect(unknown).toMatchObject({
    code: 69,
    err: 'The frontend at http://nowhere.invalid cannot be reached: no address is known for the host nowhere.invalid. Check the network, and the address: --address, else its variable, else the context.\n',
  });
});

test('a command ends with exit code 69 when the service hangs up, and a write warns that it may have run', async () => {
  await using service = await StubService.start((_, response) => response.destroy());
  const gone = `The frontend at ${service.address} gave no answer (socket hang up).`;
  const list = await cli(['agent', 'list', '--address', service.address]);
  expect(list).toMatchObject({ code: 69, err: `${gone}\n` });
  const restart = ['agent', 'restart', '11111111-1111-1111-1111-111111111111', '--address', service.address];
  const why = `${gone} The operation may have succeeded: check before you retry.\n`;
  expect(await cli(restart)).toMatchObject({ code: 69, err: why });
});

test.each([
  ['x-tenant-id', ['agent', 'list', '--tenant', 'a\nb']],
  ['x-trace-id', ['agent', 'invoke', '11111111-1111-1111-1111-111111111111', '--trace-id', '\u4e2d']],
])('a value is refused with exit code 2 when it cannot be sent in the header %s', async (name, args) => {
  await using service = await empty();
  const { code, err } = await cli([...args, '--address', service.address]);
  expect({ code, seen: service.seen }).toEqual({ code: 2, seen: [] });
  expect(err).toContain(`cannot be sent as ${name}: it has characters that a header cannot have.`);
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
])('a response of %i with a message ends with exit code %3$i', async (status, message, code, sentence) => {
  await using service = await StubService.start((_, response) => json(response, status, { code: status, message }));
  const ran = await cli(['agent', 'list', '--address', service.address]);
  expect(ran.code).toBe(code);
  expect(ran.err).toContain(sentence);
});

test.each([
  ['EACCES', '/var/lib/rookery'],
  ['ENOENT', null],
])('the token of root’s service is hidden from this user when its file fails with %s', async (code, found) => {
  const stat = () => Promise.reject(Object.assign(new Error('refused'), { code }));
  expect(await findHiddenToken(stat as never)).toBe(found);
  expect(adviceOnHidden('/var/lib/rookery')).toContain('repeat the command as that user (sudo rookery …)');
});

test.each([
  [502, '<html>Bad gateway</html>', 'a proxy before the service answered 502: Bad gateway'],
  [
    413,
    '<!DOCTYPE html><title>413 Too large</title><p>nginx',
    'a proxy before the service answered 413: 413 Too large',
  ],
  [500, 'broken', 'the service answered 500: broken'],
  [200, 'welcome', 'The service answered with something that is not a JSON object: welcome'],
])('a response of %i from another program is printed', async (status, text, sentence) => {
  await using service = await StubService.start((_, response) => response.writeHead(status).end(text));
  const ran = await cli(['agent', 'list', '--address', service.address]);
  expect(ran).toMatchObject({ code: 1, err: `${sentence}\n` });
});

test.each([
  [['--address', 'ftp://x'], '--address must be a URL such as http://127.0.0.1:8888'],
  [['--address', 'http://'], '--address must be a URL'],
  [['--token', 'two words'], 'The content of --token is not a token'],
  [['--token-file', '/nowhere'], 'The token file /nowhere cannot be read: it does not exist.'],
  [['--token-file', tmpdir()], 'cannot be read: it is a directory.'],
  [['--ca-file', '/nowhere'], 'The CA file /nowhere cannot be read: it does not exist.'],
  [['--limit', '0'], '--limit must be a whole number from 1'],
])('agent list %j is refused with exit code 2', async (args, sentence) => {
  const ran = await cli(['agent', 'list', ...args]);
  expect(ran.code).toBe(2);
  expect(ran.err).toContain(sentence);
});

test('WebSocket frames are read when they arrive together with the handshake', async () => {
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

test.each([
  ['Job nope does not exist', 'rookery job list'],
  ['Schedule nope does not exist', 'rookery job schedule list'],
  ['secret not found: nope', 'rookery secret list'],
])('an unknown name is followed by the command that lists the names: %s', async (message, command) => {
  await using service = await StubService.start((_, response) => json(response, 404, { message }));
  const ran = await cli(['job', 'get', 'nope', '--address', service.address]);
  expect(ran).toMatchObject({ code: 1, err: `${message}\n"${command}" shows those that exist.\n` });
});

test('invoke --async --wait prints the id of the call before the service disconnects', async () => {
  await using service = await StubService.start(({ method }, response) => {
    if (method === 'POST') json(response, 202, { requestId: 'r-1' });
    else response.destroy();
  });
  const args = ['function', 'invoke', 'sn:cn:yrk:default:function:0@default@f:v1', '--async', '--wait'];
  const { code, out, err } = await cli([...args, '--address', service.address]);
  expect({ code, out, told: err.split('\n')[0] }).toEqual({ code: 69, out: '', told: 'r-1' });
});

test('many parallel and sequential requests cause no warning about leaking listeners', async () => {
  await using service = await empty();
  const signal = new AbortController().signal;
  const warnings: Error[] = [];
  const note = (warning: Error) => void warnings.push(warning);
  process.on('warning', note);
  try {
    const io = { environment: {}, signal, out: NOWHERE, err: NOWHERE, stdin: Readable.from([]) };
    const client = await Client.open({ address: service.address }, io);
    await Promise.all(Array.from({ length: 20 }, () => client.json('GET', '/')));
    for (let sent = 0; sent < 20; sent++) await client.json('GET', '/');
    await new Promise(resolve => setImmediate(resolve));
  } finally {
    process.off('warning', note);
  }
  expect(warnings).toEqual([]);
});

test.each([
  ['mount source', tmpdir(), 'add --upload'],
  ['code path', tmpdir(), 'add --upload'],
  ['mount source', '/nowhere/at/all', null],
])("a missing %s at %s names --upload when the path exists on the client's machine", async (noun, path, advice) => {
  await using service = await StubService.start((_, response) =>
    json(response, 500, { message: `failed to create agent: ${noun} does not exist: ${path}` }),
  );
  const { err } = await cli(['agent', 'get', 'x', '--address', service.address]);
  expect(err.includes('the user of the service may not read it')).toBe(advice !== null);
  if (advice !== null) expect(err).toContain(advice);
});
