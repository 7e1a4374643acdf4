import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Served } from '../../scripts/served.ts';

const MAIN = join(ROOT, 'dist/main.js');
const CODE = `
def hello(event, context):
    print("called with", event)
    return {"hello": event.get("name"), "session": context.session_id}

def count(event, context):
    for n in range(3):
        context.get_stream().write(str(n))
    return "end"

def fail(event, context):
    context.get_stream().write("first")
    raise ValueError("late")
`;

let dir: string;
let server: Served;
let python: string;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'rookery-function-'));
  writeFileSync(join(dir, 'fn.py'), CODE);
  python = `python${(await findInterpreters()).at(-1)?.version}`;
  server = await Served.start();
  for (const handler of ['hello', 'count', 'fail']) {
    const flags = ['--kind', 'faas', '--runtime', python, '--code', dir, '--handler', `fn.${handler}`];
    const { code, err } = await rookery(['function', 'register', `cli@${handler}`, ...flags]);
    if (code !== 0) throw new Error(err);
  }
});
afterAll(async () => {
  await server?.remove();
  rmSync(dir, { recursive: true, force: true });
});

interface Running {
  readonly child: ChildProcess;
  readonly written: { out: string; err: string };
  readonly ended: Promise<number | null>;
}

function start(args: readonly string[]): Running {
  const env = {
    PATH: process.env.PATH,
    ROOKERY_ADDRESS: server.frontendUrl,
    ROOKERY_META_ADDRESS: server.metaUrl,
  };
  const child = spawn(MAIN, args, { env, stdio: ['pipe', 'pipe', 'pipe'] });
  const written = { out: '', err: '' };
  child.stdout.on('data', chunk => {
    written.out += String(chunk);
  });
  child.stderr.on('data', chunk => {
    written.err += String(chunk);
  });
  return { child, written, ended: once(child, 'close').then(([code]) => code as number | null) };
}

async function rookery(args: readonly string[]) {
  const { child, written, ended } = start(args);
  child.stdin?.end();
  return { code: await ended, ...written };
}

test('invoke prints what the handler returns; sessions reach it', async () => {
  const { code, out } = await rookery(['function', 'invoke', 'cli@hello', '{"name":"you"}', '--session', 's1']);
  expect({ code, value: JSON.parse(out) }).toEqual({ code: 0, value: { hello: 'you', session: 's1' } });
});

test('invoke --async prints a request id; with --wait the value', async () => {
  expect((await rookery(['function', 'invoke', 'cli@hello', '--async'])).out).toMatch(/^[0-9a-f-]{36}\n$/);
  const { out } = await rookery(['function', 'invoke', 'cli@hello', '-d', '{"name":"later"}', '--async', '--wait']);
  expect(JSON.parse(out)).toMatchObject({ hello: 'later' });
});

test('invoke --stream prints events as they come; a late failure ends it with 1', async () => {
  expect(await rookery(['function', 'invoke', 'cli@count', '--stream'])).toEqual({
    code: 0,
    out: '0\n1\n2\nend\n',
    err: '',
  });
  const failed = await rookery(['function', 'invoke', 'cli@fail', '--stream']);
  expect(failed).toMatchObject({ code: 1, out: 'first\n', err: expect.stringContaining('late') });
});

test('a refusal is its sentence', async () => {
  expect(await rookery(['function', 'invoke', 'cli@hello', '--label', 'nosuch'])).toMatchObject({
    code: 1,
    err: expect.stringContaining('nosuch'),
  });
  expect(await rookery(['function', 'invoke', 'cli@nosuch'])).toMatchObject({ code: 1, out: '' });
});

test('instances and logs show what runs, all of it or one', async () => {
  await rookery(['function', 'invoke', 'cli@hello', '{"name":"log"}']);
  const ids = (await rookery(['function', 'instances', 'cli@hello', '-q'])).out.trim().split('\n');
  expect(ids).toHaveLength(1);
  const id = ids[0] ?? '';
  expect((await rookery(['function', 'instances', 'cli@hello'])).out).toContain(id);
  expect((await rookery(['function', 'logs', 'cli@hello', '--tail', '1'])).out).toBe(
    `[${id.slice(0, 8)}] called with {'name': 'log'}\n`,
  );
  expect((await rookery(['function', 'logs', 'cli@hello', '--instance', id, '--tail', '1'])).out).toBe(
    "called with {'name': 'log'}\n",
  );
  expect((await rookery(['function', 'logs', 'cli@hello', '--instance', 'nosuch'])).code).toBe(1);
});

test('dev serves a directory, begins anew when it changes, and leaves nothing', async () => {
  const own = mkdtempSync(join(tmpdir(), 'rookery-dev-'));
  try {
    writeFileSync(join(own, 'app.py'), 'def handle(event, context):\n    return {"version": 1, "event": event}\n');
    const flags = ['--handler', 'app.handle', '--runtime', python, '--name', 'cli@dev', '-d', '7'];
    const { child, written, ended } = start(['function', 'dev', own, ...flags]);
    await expect.poll(() => written.out, { timeout: 15_000 }).toContain('{"version":1,"event":7}\n');
    writeFileSync(
      join(own, 'app.py'),
      'def handle(event, context):\n    print("fresh")\n    return {"version": 2, "event": event}\n',
    );
    await expect.poll(() => written.out, { timeout: 15_000 }).toContain('{"version":2,"event":7}\n');
    await expect.poll(() => written.out, { timeout: 15_000 }).toContain('] fresh\n');
    child.stdin?.write('{"typed":true}\n');
    await expect.poll(() => written.out, { timeout: 15_000 }).toContain('{"version":2,"event":{"typed":true}}\n');
    child.kill('SIGINT');
    expect(await ended).toBe(0);
    expect((await rookery(['function', 'get', 'cli@dev'])).err).toContain('4115');
  } finally {
    rmSync(own, { recursive: true, force: true });
  }
});
