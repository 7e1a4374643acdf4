import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Served } from '../../scripts/served.ts';

const servers: Served[] = [];

/**
 * Starts a server that is removed after the test in any case. `next` shares the directory, so only the first
 * is recorded.
 */
async function serve(): Promise<Served> {
  const server = await Served.start();
  servers.push(server);
  return server;
}

afterEach(async () => {
  for (const server of servers.splice(0)) await server.remove();
});

async function post(url: string, body: unknown): Promise<{ status: number; body: Record<string, unknown> }> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

async function createHello(server: Served): Promise<string> {
  const python = (await findInterpreters()).at(-1);
  const { status, body } = await post(`${server.frontendUrl}/api/agent`, {
    namespace: 'e2e',
    name: 'hello',
    mounts: [{ source: join(ROOT, 'examples/hello'), target: '/code', readonly: true }],
    runtime_spec: {
      runtime: `python${python?.version}`,
      codePath: '/code',
      handler: 'handler.handle',
      extendedHandler: { initializer: 'handler.initialize' },
      rootfs: { imageurl: 'host' },
    },
  });
  expect({ status, body }).toMatchObject({ status: 200, body: { code: 200 } });
  return String(body.instance_id);
}

test('both entries answer as soon as the ready line is printed', async () => {
  const server = await serve();
  for (const url of [server.frontendUrl, server.metaUrl]) {
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
  }
});

test('with --local-token the API requires the token that the command line reads from the data directory', async () => {
  const server = await Served.start({ args: ['--local-token'] });
  servers.push(server);
  const file = join(server.dataDir, 'local-token');
  expect(statSync(file).mode & 0o777).toBe(0o600);
  for (const url of [`${server.frontendUrl}/api/agent`, `${server.metaUrl}/openapi.json`]) {
    expect((await fetch(url)).status).toBe(401);
    const headers = { authorization: `Bearer ${readFileSync(file, 'utf8').trim()}`, 'x-tenant-id': 'anybody' };
    expect((await fetch(url, { headers })).status).toBe(200);
  }
  expect((await fetch(`${server.frontendUrl}/healthz`)).status).toBe(200);
  const list = ['dist/main.js', 'agent', 'list', '--address', server.frontendUrl];
  expect((await run(process.execPath, [...list, '--data-dir', server.dataDir], { cwd: ROOT })).code).toBe(0);
  expect((await run(process.execPath, [...list, '--data-dir', ROOT], { cwd: ROOT })).code).toBe(77);
  expect(await server.end('SIGTERM')).toBe(0);
  expect(existsSync(file)).toBe(false);
});

test('SIGTERM ends the server with exit code 0, and the next start on the same directory succeeds', async () => {
  const server = await serve();
  expect(await server.end('SIGTERM')).toBe(0);
  const next = await server.next();
  expect((await fetch(`${next.frontendUrl}/healthz`)).status).toBe(200);
  expect(await next.end()).toBe(0);
});

test('an agent keeps its memory when the server is killed and another one takes over', async () => {
  const server = await serve();
  const id = await createHello(server);
  const path = `/api/agent/${id}/invoke`;
  const first = await post(`${server.frontendUrl}${path}`, { name: 'Ada' });
  expect(first).toMatchObject({ status: 200, body: { data: { calls: 1 } } });
  await server.end('SIGKILL');
  const next = await server.next();
  try {
    const second = await post(`${next.frontendUrl}${path}`, { name: 'Ada' });
    expect(second).toMatchObject({ status: 200, body: { data: { calls: 2 } } });
  } finally {
    await next.end('SIGKILL');
  }
});

test('all wrong settings are reported together, with exit code 78', async () => {
  const main = join(ROOT, 'dist/main.js');
  const settings = ['--set', 'nosuch=1', '--port', 'many'];
  const { code, output } = await run(process.execPath, [main, 'serve', ...settings], { capture: true });
  expect(code).toBe(78);
  expect(output).toContain('nosuch');
  expect(output).toContain('many');
});

test('removing a served Rookery leaves no data directory', async () => {
  const server = await Served.start();
  await server.remove();
  expect(server.hasEnded).toBe(true);
  expect(existsSync(server.dataDir)).toBe(false);
});
