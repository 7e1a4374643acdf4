import http from 'node:http';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { MemorySandbox } from '../../../test/fakes/memory-sandbox.ts';
import { type AddressBed, addressBed } from '../../../test/http/addresses-bed.ts';
import { SPEC } from '../../../test/http/frontend.ts';
import { HostAccess } from '../../../test/http/host-access.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { memoryKeys } from '../../../test/http/memory-keys.ts';
import { Inside } from '../../../test/http/passthrough-bed.ts';
import type { Instance } from '../../core/instance.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { E2bSandboxes, sandboxIdOf, signatureOf } from './sandboxes.ts';

const DOMAIN = 'sandbox.test';
const KEY = Buffer.alloc(32, 7);
const MISSING = 'The sandbox was not found';
const CLOSED = 'The sandbox is running but port is not open';

const inside = new Inside();
let bed: AddressBed;
let sandbox: Instance;
let id: string;
let token: string;
let echo: number;

beforeAll(async () => {
  echo = await inside.http((request, response) => {
    const { method, url, headers } = request;
    request.resume().on('end', () => response.end(JSON.stringify({ method, url, headers })));
  });
});
afterAll(() => inside.close());
beforeEach(async () => {
  bed = await addressBed({ e2b: { keys: memoryKeys(), domain: `${DOMAIN}:81` } });
  // Processes and files are in memory, and ports are those of the host.
  bed.instances.inside = withPorts(new MemorySandbox());
  sandbox = bed.instances.put(newInstance({ ...SPEC, template: 'base', env: { FOO: 'bar' } }));
  id = sandboxIdOf(sandbox.id);
  token = new E2bSandboxes(bed.instances, KEY).tokenOf(sandbox);
});
afterEach(() => bed[Symbol.asyncDispose]());

function withPorts(files: MemorySandbox): SandboxAccess {
  const ports = new HostAccess('/');
  return new Proxy(files as unknown as SandboxAccess, {
    get: (target, name) => {
      const value = name === 'dial' ? ports.dial : Reflect.get(target, name);
      return typeof value === 'function' ? value.bind(name === 'dial' ? ports : target) : value;
    },
  });
}

const named = (port: number | string = echo, sandboxId = id) => ({
  'E2b-Sandbox-Id': sandboxId,
  'E2b-Sandbox-Port': String(port),
});
const send = (path: string, headers: http.OutgoingHttpHeaders = {}, method = 'GET', body?: string) =>
  bed.ask(`127.0.0.1:${bed.port}`, path, { headers, method, ...(body !== undefined && { body }) });
const signed = (path: string, operation: 'read' | 'write' = 'read', expiration = '') => {
  const signature = signatureOf({ path, operation, username: '', expiration }, token);
  return `/files?${new URLSearchParams({ path, signature, ...(expiration && { signature_expiration: expiration }) })}`;
};

describe('requests below /e2b/sandbox', () => {
  it('reach the port that headers name, with path and query unchanged', async () => {
    for (const path of ['/x?y', '/a%2Fb/%ff?q=%20+&&=', '/', '?only=query', '/..%2f', '/%zz']) {
      const { status, text } = await send(`/e2b/sandbox${path}`, named(), 'POST', 'body');
      expect(status).toBe(200);
      expect(JSON.parse(text)).toMatchObject({ method: 'POST', url: path.startsWith('/') ? path : `/${path}` });
    }
    expect(JSON.parse((await send('/e2b/sandbox', named())).text).url).toBe('/');
  });

  it('reach a port without any credential when authentication is on', async () => {
    const verify = async () => Promise.reject(new Error('no token is valid'));
    await using strict = await addressBed({ auth: { known: () => undefined, verify } });
    strict.instances.put(sandbox);
    const { status } = await strict.ask(`127.0.0.1:${strict.port}`, '/e2b/sandbox/x', { headers: named() });
    expect(status).toBe(200);
  });

  it('answer 502 for sandboxes that do not run, with the words that clients look for', async () => {
    const unknown = '0'.repeat(32);
    for (const [port, sandboxId] of [
      [echo, unknown],
      [49_983, unknown],
      [echo, 'i3k0'],
    ] as const) {
      const { status, text } = await send('/e2b/sandbox/health', named(port, sandboxId));
      expect([status, JSON.parse(text)]).toEqual([502, { sandboxId, message: MISSING, code: 502 }]);
    }
    for (const status of ['PAUSED', 'STOPPING', 'FAILED', 'CREATING'] as const) {
      bed.instances.put({ ...sandbox, status });
      expect((await send('/e2b/sandbox/health', named(49_983))).status).toBe(502);
      expect((await send('/e2b/sandbox/', named())).text).toContain(MISSING);
    }
    bed.instances.put(newInstance(SPEC));
  });

  it('answer 502 if nothing listens on the port', async () => {
    const closed = new Inside();
    const port = await closed.tcp(() => undefined);
    await closed.close();
    const { status, text } = await send('/e2b/sandbox/', named(port), 'POST', 'x');
    expect([status, JSON.parse(text)]).toEqual([502, { sandboxId: id, message: CLOSED, port, code: 502 }]);
  });

  it('do not reach agents without a template', async () => {
    const agent = bed.instances.put(newInstance(SPEC));
    expect((await send('/e2b/sandbox/', named(echo, sandboxIdOf(agent.id)))).text).toContain(MISSING);
  });

  it('are refused without a sandbox, or with a malformed one', async () => {
    for (const [headers, text] of [
      [{}, 'missing header'],
      [{ 'E2b-Sandbox-Id': id }, 'missing header'],
      [{ 'E2b-Sandbox-Port': '80' }, 'missing header'],
      [named('0'), 'Invalid sandbox port'],
      [named('x'), 'Invalid sandbox port'],
      [named('65536'), 'Invalid sandbox port'],
      [named(80, 'A-b'), 'Invalid sandbox ID'],
    ] as const) {
      const { status, message } = await send('/e2b/sandbox/health', headers, 'POST', 'x'.repeat(60_000));
      expect(status).toBe(400);
      expect(message).toContain(text);
    }
  });

  it('go to port 49983 if only an access token names the sandbox', async () => {
    expect((await send('/e2b/sandbox/health', { 'X-Access-Token': token })).status).toBe(204);
    const envs = await send('/e2b/sandbox/envs', { 'X-Access-Token': token });
    expect(JSON.parse(envs.text)).toEqual({ FOO: 'bar' });
    const wrong = token.slice(0, -1) + (token.endsWith('0') ? '1' : '0');
    expect((await send('/e2b/sandbox/health', { 'X-Access-Token': wrong })).status).toBe(401);
    await bed.instances.delete('default', sandbox.id, 0);
    const gone = await send('/e2b/sandbox/health', { 'X-Access-Token': token });
    expect([gone.status, JSON.parse(gone.text).sandboxId]).toEqual([502, id]);
  });

  it('open port 49983 with the own token of the sandbox only', async () => {
    const other = bed.instances.put(newInstance({ ...SPEC, name: 'other', template: 'base' }));
    const foreign = new E2bSandboxes(bed.instances, KEY).tokenOf(other);
    const { text: key } = await memoryKeys().create('default', 'developer');
    for (const headers of [{}, { 'X-Access-Token': foreign }, { 'X-API-Key': key }, { Authorization: 'Basic dTo=' }]) {
      for (const path of ['/envs', '/metrics', '/files?path=a']) {
        expect((await send(`/e2b/sandbox${path}`, { ...named(49_983), ...headers })).status).toBe(401);
      }
    }
    const metrics = await send('/e2b/sandbox/metrics', { ...named(49_983), 'X-Access-Token': token });
    expect(Object.keys(JSON.parse(metrics.text))).toContain('cpu_used_pct');
    for (const path of ['/init', '/freeze', '/unfreeze']) {
      expect((await send(`/e2b/sandbox${path}`, named(49_983), 'POST', '{}')).status).toBe(404);
      const headers = { ...named(49_983), 'X-Access-Token': token };
      expect((await send(`/e2b/sandbox${path}`, headers, 'POST', '{}')).status).toBe(404);
    }
  });

  it('read and write files', async () => {
    const headers = { ...named(49_983), 'X-Access-Token': token, 'Content-Type': 'application/octet-stream' };
    expect((await send('/e2b/sandbox/files?path=a%20b.txt', headers, 'POST', 'hello')).status).toBe(200);
    const read = await send('/e2b/sandbox/files?path=a%20b.txt', headers);
    expect(read.text).toBe('hello');
    // A page of the sandbox at the host name of the service must not act as the service.
    expect(read.headers['content-security-policy']).toContain('sandbox');
  });

  it('do not pass credentials of the service to a sandbox', async () => {
    const { text: key } = await memoryKeys().create('default', 'developer');
    const { text } = await send('/e2b/sandbox/', { ...named(), 'X-API-Key': key, 'X-Other': 'kept' });
    expect(JSON.parse(text).headers).toMatchObject({ 'x-other': 'kept' });
    expect(text).not.toContain(key);
  });

  it('pass WebSockets', async () => {
    const server = new WebSocketServer({ noServer: true });
    const port = await inside.listen(
      http.createServer().on('upgrade', (request, socket, head) => {
        server.handleUpgrade(request, socket, head, it => it.on('message', data => it.send(`got ${data}`)));
      }),
    );
    const socket = new WebSocket(`ws://127.0.0.1:${bed.port}/e2b/sandbox/ws`, { headers: named(port) });
    await new Promise(resolve => socket.once('open', resolve));
    socket.send('hi');
    expect(String(await new Promise(resolve => socket.once('message', resolve)))).toBe('got hi');
    const closed = new Promise(resolve => socket.once('close', resolve));
    socket.terminate();
    await closed;
  });

  it('need the traffic token of a sandbox with private ports, except for port 49983', async () => {
    const it = bed.instances.put({ ...sandbox, spec: { ...sandbox.spec, hasPrivatePorts: true } });
    const { trafficToken } = new E2bSandboxes(bed.instances, KEY).of(it);
    const header = (value: string) => ({ ...named(), 'E2b-Traffic-Access-Token': value });
    for (const headers of [named(), header('x'), header(token)]) {
      const { status, message } = await send('/e2b/sandbox/', headers);
      expect(status).toBe(403);
      expect(message).toContain('e2b-traffic-access-token');
    }
    expect((await send('/e2b/sandbox/', header(trafficToken ?? ''))).status).toBe(200);
    expect((await send('/e2b/sandbox/health', named(49_983))).status).toBe(204);
  });

  it('resume a paused sandbox that allows it', async () => {
    bed.instances.put({
      ...sandbox,
      status: 'PAUSED',
      pausedAtMs: Date.now(),
      spec: { ...sandbox.spec, resumeOnTraffic: true },
    });
    expect((await send('/e2b/sandbox/', named())).status).toBe(200);
    expect((await bed.instances.find(sandbox.id))?.status).toBe('RUNNING');
  });
});

describe('signed file URLs', () => {
  it('find their sandbox without any header', async () => {
    const other = bed.instances.put(newInstance({ ...SPEC, name: 'other', tenant: 'two', template: 'base' }));
    expect(other.id).not.toBe(sandbox.id);
    const type = { 'Content-Type': 'application/octet-stream' };
    expect((await send(signed('a b', 'write'), type, 'POST', 'hello')).status).toBe(200);
    const read = await send(signed('a b'));
    expect([read.status, read.text]).toEqual([200, 'hello']);
    expect(read.headers['content-security-policy']).toContain('sandbox');
  });

  it('are refused if expired, wrong, missing or for another operation', async () => {
    for (const [path, method, message] of [
      [signed('a', 'read', '17'), 'GET', 'signature is already expired'],
      [signed('a', 'read'), 'POST', 'invalid signature'],
      [signed('a').replace('path=a', 'path=b'), 'GET', 'invalid signature'],
      [signed('a', 'read', '9999999999').replace('=9999999999', '=9999999998'), 'GET', 'invalid signature'],
      ['/files?path=a&signature=v1_x', 'GET', 'invalid signature'],
      ['/files?path=a', 'GET', 'missing signature query parameter'],
    ] as const) {
      const { status, text } = await send(path, {}, method, method === 'POST' ? 'x'.repeat(60_000) : undefined);
      expect([status, JSON.parse(text)]).toEqual([401, { code: 401, message }]);
    }
  });

  it('are not scripts for pages of the service', async () => {
    const headers = { 'Sec-Fetch-Site': 'same-origin', 'Sec-Fetch-Dest': 'script' };
    expect((await send(signed('a'), headers)).status).toBe(403);
  });
});

describe('host names of sandboxes', () => {
  const host = (label: string) => `${label}.${DOMAIN}:${bed.port}`;

  it('belong to the port with every path', async () => {
    for (const path of [
      '/x?y=1',
      '/api/agent',
      '/healthz',
      '/files',
      '/metrics',
      '/mcp',
      '/e2b/v2/sandboxes',
      '/e2b/sandbox/',
    ]) {
      const { status, text } = await bed.ask(host(`${echo}-${id}`), path);
      expect(status).toBe(200);
      expect(JSON.parse(text)).toMatchObject({ url: path, headers: { host: host(`${echo}-${id}`) } });
    }
    const posted = await bed.ask(host(`${echo}-${id}`), '/api/agent/x/invoke', { method: 'POST', body: '{}' });
    expect(JSON.parse(posted.text).url).toBe('/api/agent/x/invoke');
  });

  it('may have further parts behind the id', async () => {
    expect((await bed.ask(host(`${echo}-${id}-abc`), '/x')).status).toBe(200);
  });

  it('reach port 49983 and signed files', async () => {
    expect((await bed.ask(host(`49983-${id}`), '/health')).status).toBe(204);
    const { status, text } = await bed.ask(host(`49983-${id}`), '/envs', { headers: { 'X-Access-Token': token } });
    expect([status, JSON.parse(text)]).toEqual([200, { FOO: 'bar' }]);
    expect((await bed.ask(host(`49983-${id}`), signed('a'))).status).toBe(404);
    expect((await bed.ask(host(`49983-${id}`), '/files?path=a')).status).toBe(401);
  });

  it('answer 502 for unknown sandboxes', async () => {
    const { status, text } = await bed.ask(host(`80-${'0'.repeat(32)}`), '/');
    expect([status, JSON.parse(text).message]).toEqual([502, MISSING]);
  });

  it('serve the control API at api.<domain>, and sandboxes at sandbox.<domain>', async () => {
    const key = `e2b_${'0'.repeat(40)}`;
    const { status, text } = await bed.ask(host('api'), '/v2/sandboxes', { headers: { 'X-API-Key': key } });
    expect([status, JSON.parse(text).length]).toEqual([200, 1]);
    const answer = await bed.ask(host('sandbox'), '/health', { headers: named(49_983) });
    expect(answer.status).toBe(204);
  });

  it('without the setting belong to no sandbox', async () => {
    await using plain = await addressBed();
    plain.instances.put(sandbox);
    expect((await plain.ask(`${echo}-${id}.${DOMAIN}`, '/x')).status).toBe(421);
  });
});
