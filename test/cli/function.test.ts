import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';

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
  server = await Served.start({ args: [STOP_AGENTS] });
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

test('invoke prints the value of the handler and passes the session on', async () => {
  const { code, out } = await rookery(['function', 'invoke', 'cli@hello', '{"name":"you"}', '--session', 's1']);
  expect({ code, value: JSON.parse(out) }).toEqual({ code: 0, value: { hello: 'you', session: 's1' } });
});

test('the first example in the help of register makes a function that can be called and published', async () => {
  const { out: help } = await rookery(['function', 'register', '--help']);
  const line = /^\s+rookery (function register hello --code \.\/hello .*)$/m.exec(help)?.[1] ?? '';
  const here: Record<string, string> = { './hello': dir, 'handler.handle': 'fn.hello', hello: 'cli@first' };
  const made = await rookery([...line.split(' ').map(word => here[word] ?? word), '--min', '1']);
  expect(made).toMatchObject({ code: 0, err: '' });
  const { out, err } = await rookery(['function', 'invoke', 'cli@first', '{"name":"you"}']);
  expect({ err, value: out && JSON.parse(out) }).toMatchObject({ err: '', value: { hello: 'you' } });
  await expect
    .poll(async () => (await rookery(['function', 'instances', 'cli@first', '-q'])).out.trim().split('\n').length, {
      timeout: 30_000,
    })
    .toBe(1);
  const urn = (await rookery(['function', 'publish', 'cli@first', '--as', 'v1'])).out.trim();
  expect((await rookery(['agent', 'create', 'of-first', '--urn', urn])).code).toBe(0);
  expect((await rookery(['agent', 'invoke', 'of-first', '{"name":"me"}'])).out).toContain('"hello":"me"');
  await rookery(['agent', 'delete', 'of-first']);
});

test('invoke runs a function whose code path lies inside a mount', async () => {
  const file = join(dir, 'function.json');
  const mounts = [{ source: dir, target: '/srv', readonly: true }];
  const size = { cpu: 500, memory: 256 };
  const code = { handler: 'fn.hello', codePath: '/srv/', rootfs: { mounts } };
  writeFileSync(file, JSON.stringify({ name: '0@cli@mounted', kind: 'agent', runtime: python, ...size, ...code }));
  expect((await rookery(['function', 'register', '-f', file])).code).toBe(0);
  expect((await rookery(['function', 'invoke', 'cli@mounted', '{"name":"x"}'])).out).toContain('"hello":"x"');
});

test('register and instances print the reason when the instances of a function cannot start', async () => {
  const flags = ['--kind', 'faas', '--runtime', python, '--handler', 'fn.hello', '--min', '2'];
  const made = await rookery(['function', 'register', 'cli@nowhere', '--code', join(dir, 'nowhere'), ...flags]);
  expect(made).toMatchObject({ code: 0, err: expect.stringMatching(/has no directory .*mounts\.allow.*--upload/) });
  await expect
    .poll(async () => (await rookery(['function', 'instances', 'cli@nowhere'])).err)
    .toContain('warning: the last start of an instance failed: the code directory does not exist');
});

test('register and publish print the next step when the registry refuses them', async () => {
  const flags = ['--kind', 'faas', '--runtime', python, '--code', dir, '--handler', 'fn.hello'];
  await rookery(['function', 'register', 'cli@again', ...flags]);
  const twice = await rookery(['function', 'register', 'cli@again', ...flags]);
  expect(twice).toMatchObject({
    code: 1,
    err: expect.stringMatching(/already exists. rename your function[\s\S]*function update/),
  });
  await rookery(['function', 'publish', 'cli@again', '--as', 'v1']);
  const published = await rookery(['function', 'publish', 'cli@again', '--as', 'v1']);
  expect(published.err).toMatch(/duplicate version number[\s\S]*--as v2/);
  expect((await rookery(['function', 'get', 'cli@again:v9'])).err).toContain(
    'The versions of 0@cli@again are $latest, v1.',
  );
  const imageless = await rookery(['function', 'register', 'cli@docker', ...flags, '--sandbox', 'docker']);
  expect(imageless).toMatchObject({ code: 2, err: expect.stringContaining('needs an image') });
});

test('register names the layer that is no archive', async () => {
  const layer = join(dir, 'fn.py');
  const flags = ['--kind', 'faas', '--runtime', 'lambda', '--code', dir, '--handler', 'fn.hello', '--layer', layer];
  const { code, err } = await rookery(['function', 'register', 'cli@layered', ...flags]);
  expect([code, err]).toEqual([2, expect.stringContaining(`--layer: ${layer}: it is no archive`)]);
});

test('invoke --async prints a request id, and with --wait the value', async () => {
  expect((await rookery(['function', 'invoke', 'cli@hello', '--async'])).out).toMatch(/^[0-9a-f-]{36}\n$/);
  const { out } = await rookery(['function', 'invoke', 'cli@hello', '-d', '{"name":"later"}', '--async', '--wait']);
  expect(JSON.parse(out)).toMatchObject({ hello: 'later' });
});

test('invoke --stream prints each event when it arrives and exits with 1 after a late failure', async () => {
  expect(await rookery(['function', 'invoke', 'cli@count', '--stream'])).toEqual({
    code: 0,
    out: '0\n1\n2\nend\n',
    err: '',
  });
  const failed = await rookery(['function', 'invoke', 'cli@fail', '--stream']);
  expect(failed).toMatchObject({ code: 1, out: 'first\n', err: expect.stringContaining('late') });
});

test('invoke prints the message of the service when a call is refused', async () => {
  expect(await rookery(['function', 'invoke', 'cli@hello', '--label', 'nosuch'])).toMatchObject({
    code: 1,
    err: expect.stringContaining('nosuch'),
  });
  expect(await rookery(['function', 'invoke', 'cli@nosuch'])).toMatchObject({ code: 1, out: '' });
});

test('instances and logs print all instances, or a single one when its id is given', async () => {
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

test('dev serves a directory, reloads it when a file changes, and removes everything at its end', async () => {
  const own = mkdtempSync(join(tmpdir(), 'rookery-dev-'));
  try {
    writeFileSync(join(own, 'app.py'), 'def handle(event, context):\n    return {"version": 1, "event": event}\n');
    const flags = ['--handler', 'app.handle', '--runtime', python, '--name', 'cli@dev', '-d', '7'];
    const { child, written, ended } = start(['function', 'dev', own, ...flags]);
    await expect.poll(() => written.out).toContain('{"version":1,"event":7}\n');
    // Replaces the file twice by a rename, as editors do.
    for (const version of ['a', 'b']) {
      const temporary = join(own, '.app.py.tmp');
      writeFileSync(temporary, `def handle(event, context):\n    return {"version": "${version}", "event": event}\n`);
      renameSync(temporary, join(own, 'app.py'));
      await expect.poll(() => written.out).toContain(`{"version":"${version}","event":7}\n`);
    }
    writeFileSync(
      join(own, 'app.py'),
      'def handle(event, context):\n    print("fresh")\n    return {"version": 2, "event": event}\n',
    );
    await expect.poll(() => written.out).toContain('{"version":2,"event":7}\n');
    await expect.poll(() => written.out).toContain('] fresh\n');
    child.stdin?.write('{"typed":true}\n');
    await expect.poll(() => written.out).toContain('{"version":2,"event":{"typed":true}}\n');
    child.kill('SIGINT');
    expect(await ended).toBe(0);
    expect((await rookery(['function', 'get', 'cli@dev'])).err).toContain('4115');
  } finally {
    rmSync(own, { recursive: true, force: true });
  }
});
