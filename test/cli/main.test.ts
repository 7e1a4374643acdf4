import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { Served } from '../../scripts/served.ts';

const MAIN = join(ROOT, 'dist/main.js');
const SECRET = 'a-secret-of-more-than-thirty-two-bytes';

const HANDLERS = `import time

def echo(event, context):
    print("called")
    return event

def slow(event, context):
    print("begun")
    time.sleep(600)
`;

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'rookery-main-'));
  writeFileSync(join(dir, 'handler.py'), HANDLERS);
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

/** Runs the program as a user does, through its shebang line. */
async function rookery(args: readonly string[], env: Record<string, string> = {}) {
  const child = spawn(MAIN, args, { env: { PATH: process.env.PATH, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  const written = { out: '', err: '' };
  child.stdout.on('data', chunk => {
    written.out += String(chunk);
  });
  child.stderr.on('data', chunk => {
    written.err += String(chunk);
  });
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, ...written };
}

function create(server: Served, name: string, handler: string, env: Record<string, string> = {}) {
  const flags = ['--address', server.frontendUrl, '--code', dir, '--handler', handler];
  return rookery(['agent', 'create', name, ...flags], env);
}

test('the executable prints its help', async () => {
  expect(await rookery(['--help'])).toMatchObject({ code: 0, err: '', out: expect.stringContaining('Usage: rookery') });
});

test('a command reports that its working directory was removed', async () => {
  const gone = mkdtempSync(join(tmpdir(), 'rookery-gone-'));
  const child = spawn('sh', ['-c', 'cd "$1" && rmdir "$1" && exec "$2" config show --local', 'sh', gone, MAIN], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const [error, [code]] = await Promise.all([text(child.stderr), once(child, 'close')]);
  expect({ error, code }).toEqual({
    error: 'The working directory was removed. Change to one that exists, for example: cd ~\n',
    code: 1,
  });
});

test('the agent commands create, call and delete an agent by its name', async () => {
  await using server = await Served.start();
  const env = { ROOKERY_ADDRESS: server.frontendUrl };
  const { out, code } = await create(server, 'hello', 'handler.echo');
  expect(code).toBe(0);
  const id = out.trim();
  expect(id).toMatch(/^[0-9a-f-]{36}$/);
  const event = '{"big":12345678901234567890}';
  expect(await rookery(['agent', 'invoke', 'hello', event], env)).toEqual({ code: 0, out: `${event}\n`, err: '' });
  expect((await rookery(['agent', 'list', '-q'], env)).out).toBe(`${id}\n`);
  expect((await rookery(['agent', 'get', 'hello'], env)).out).toContain('RUNNING');
  expect((await rookery(['agent', 'logs', 'hello', '--tail', '1'], env)).out).toBe('called\n');
  expect(await rookery(['agent', 'exec', 'hello', 'sh', '-c', 'echo $0 >&2; exit 7', 'x'], env)).toEqual({
    code: 7,
    out: '',
    err: 'x\n',
  });
  expect((await create(server, 'hello', 'handler.echo')).err).toBe(
    'failed to create agent: agent default/hello already exists. The same command with --replace puts this one in its place; ' +
      'rookery agent rm hello removes it.\n',
  );
  expect((await rookery(['agent', 'restart', 'hello'], env)).out).toBe(`${id}\n`);
  expect((await rookery(['agent', 'delete', 'hello'], env)).out).toBe(`${id}\n`);
  expect((await rookery(['agent', 'delete', id], env)).err).toBe(`instance not found: ${id}\n`);
});

describe('the serve command at its end', () => {
  test('serve prints how many agents keep running, and removes all of them with --stop-agents', async () => {
    await using server = await Served.start();
    await create(server, 'hello', 'handler.echo');
    expect(await server.end('SIGTERM')).toBe(0);
    expect(server.output).toMatch(
      /^stopped: 1 agent lives on and is adopted at the next start; "rookery stop --all" ends everything of this machine$/m,
    );
    const next = await server.next({ args: ['--stop-agents'] });
    expect(await next.end('SIGINT')).toBe(0);
    expect(next.output).toMatch(/^stopped: no agent is left$/m);
  });

  test('serve exits immediately on a second signal while a call is running', async () => {
    await using server = await Served.start();
    const env = { ROOKERY_ADDRESS: server.frontendUrl };
    await create(server, 'slow', 'handler.slow');
    const call = rookery(['agent', 'invoke', 'slow'], env);
    const logs = spawn(MAIN, ['agent', 'logs', 'slow', '-f'], { env: { PATH: process.env.PATH, ...env } });
    await once(logs.stdout, 'data');
    const stopping = waitForOutput(server, /stopping/);
    server.process.kill('SIGTERM');
    await stopping;
    expect(await server.end('SIGTERM')).toBe(1);
    expect(server.output).toMatch(/^stopped: at once/m);
    expect((await call).code).toBe(69);
    logs.kill('SIGKILL');
  });

  test('serve keeps running when the reader of its stdout closes the pipe', async () => {
    await using server = await Served.start();
    server.process.stdout?.destroy();
    expect((await fetch(`${server.frontendUrl}/healthz`)).status).toBe(200);
    expect(await server.end('SIGTERM')).toBe(0);
  });
});

test('serve exits with code 1 and names the port when another process uses the port', async () => {
  await using server = await Served.start();
  const { port } = new URL(server.frontendUrl);
  const data = join(dir, 'data');
  const ran = await rookery(['serve', '--data-dir', data, '--port', port, '--meta-port', '0', '--log-level', 'error']);
  expect(ran).toMatchObject({
    code: 1,
    out: '',
    err: `Port ${port} is taken by another process. Choose another one with --port and --meta-port, or stop it.\n`,
  });
});

test('commands work with a token, exit with 77 without one, and neither token nor secret is logged', async () => {
  const secretFile = join(dir, 'jwt.secret');
  writeFileSync(secretFile, SECRET);
  const args = [
    '--set',
    'enable_func_token_auth=true',
    '--set',
    `jwt.secretFile=${secretFile}`,
    '--log-level',
    'trace',
  ];
  await using server = await Served.start({ args });
  const env = { ROOKERY_ADDRESS: server.frontendUrl };
  const { out } = await rookery(['token', 'create', '--tenant', 'acme', '--ttl', '1m', '--secret-file', secretFile]);
  const token = out.trim();
  expect((await rookery(['agent', 'list'], env)).code).toBe(77);
  expect((await rookery(['agent', 'list', '--token', `${token}x`], env)).code).toBe(77);
  expect((await rookery(['agent', 'list', '--json'], { ...env, ROOKERY_TOKEN: token })).out).toBe('[]\n');
  await fetch(`${server.frontendUrl}/api/agent?token=${token}`);
  expect(await server.end()).toBe(0);
  expect(server.output).toContain('authentication failed');
  expect(server.output).not.toContain(token.slice(0, 30));
  expect(server.output).not.toContain(SECRET);
});

test('doctor reports its findings for this machine as JSON', async () => {
  const ran = await rookery(['doctor', '--json', '--port', '0', '--meta-port', '0', '--data-dir', join(dir, 'doctor')]);
  const { ok, findings } = JSON.parse(ran.out) as { ok: boolean; findings: { name: string; status: string }[] };
  expect(ok).toBe(ran.code === 0);
  expect(findings.map(finding => finding.name)).toEqual(
    expect.arrayContaining([
      'node',
      'data directory',
      'database',
      'frontend',
      'meta_service',
      'python',
      'process sandbox',
    ]),
  );
  expect(findings.find(finding => finding.name === 'database')?.status).toBe('ok');
});

async function waitForOutput(server: Served, pattern: RegExp): Promise<void> {
  while (!pattern.test(server.output)) await once(server.process.stderr ?? server.process, 'data');
}

describe('a copying command that Ctrl-C interrupts', () => {
  const AGENT = '11111111-1111-1111-1111-111111111111';

  /**
   * Runs a command against a service that never finishes and interrupts it once `directory` has a file.
   * Returns the exit code, the signal and the remaining files.
   */
  async function interrupted(args: readonly string[], directory: string, service: RequestListener) {
    const server = createServer(service).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const env = { PATH: process.env.PATH, TMPDIR: directory };
    const child = spawn(MAIN, [...args, '--address', address], { env, stdio: 'ignore' });
    try {
      await vi.waitFor(() => expect(readdirSync(directory)).toHaveLength(1));
      child.kill('SIGINT');
      const [code, signal] = await once(child, 'exit');
      return { code, signal, left: readdirSync(directory) };
    } finally {
      child.kill('SIGKILL');
      server.close();
      server.closeAllConnections();
    }
  }

  test('agent create --upload removes its package and exits by the signal when interrupted', async () => {
    const directory = join(dir, 'packages');
    mkdirSync(directory);
    const args = [
      'agent',
      'create',
      'x',
      '--upload',
      '--code',
      join(ROOT, 'examples/hello'),
      '--handler',
      'handler.handle',
    ];
    const end = await interrupted(args, directory, () => undefined);
    expect(end).toEqual({ code: null, signal: 'SIGINT', left: [] });
  });

  test('agent cp removes the partial file and exits by the signal when interrupted', async () => {
    const directory = join(dir, 'copies');
    mkdirSync(directory);
    const args = ['agent', 'cp', `${AGENT}:/tmp/file`, directory];
    const end = await interrupted(args, directory, (_, answer) => {
      answer.writeHead(200, { 'content-length': 1000 });
      answer.write('half');
    });
    expect(end).toEqual({ code: null, signal: 'SIGINT', left: [] });
  });
});
