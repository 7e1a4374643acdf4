import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import type * as client from '../../clients/typescript/src/index.ts';
import { bin, ROOT, run } from '../../scripts/command.ts';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { programOfPage, startLossyProxy } from './client-bed.ts';
import { installClient } from './client-package.ts';

/** Timeout of a test with many calls, or with a program. */
const LIVE_MS = 180_000;

let served: Served;
let scratch: string;
let installed: string;
let published: typeof client;
let rookery: client.Rookery;

beforeAll(async () => {
  scratch = mkdtempSync(join(tmpdir(), 'rookery-client-'));
  installed = await installClient(scratch);
  served = await Served.start({ args: [STOP_AGENTS] });
  published = (await import(pathToFileURL(join(installed, 'dist/index.js')).href)) as typeof client;
  rookery = new published.Rookery({ url: served.frontendUrl });
});
afterAll(async () => {
  rookery?.close();
  await served?.remove();
  rmSync(scratch, { recursive: true, force: true });
});

function codeOf(name: string, files: Readonly<Record<string, string>>): string {
  const directory = join(scratch, name);
  for (const [file, content] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, file)), { recursive: true });
    writeFileSync(join(directory, file), content);
  }
  return directory;
}

const NODE = {
  'index.mjs': `import { greeting } from './lib/greeting.mjs';
let calls = 0;
export async function handle(event) {
  if (event.fail) throw new Error('asked to');
  if (event.hang) await new Promise(() => {});
  console.log('called by ' + event.name);
  return { text: greeting(event.name), calls: ++calls, env: process.env.WORD };
}`,
  'lib/greeting.mjs': "export const greeting = name => 'Hello, ' + name;",
  '.rookeryignore': 'left-out',
  'left-out': 'x',
};

test('the npm package has the licence, the readme, and the program and the types of each module', () => {
  const filesOf = (directory: string) =>
    readdirSync(directory, { recursive: true, withFileTypes: true })
      .filter(entry => entry.isFile())
      .map(entry => relative(directory, join(entry.parentPath, entry.name)));
  const modules = filesOf(join(ROOT, 'clients/typescript/src')).filter(name => !name.endsWith('.test.ts'));
  const built = modules.map(name => `dist/${name.replace(/\.ts$/, '')}`);
  expect(filesOf(installed).sort()).toEqual(
    [...built.flatMap(name => [`${name}.d.ts`, `${name}.js`]), 'LICENSE', 'README.md', 'package.json'].sort(),
  );
  for (const [name, original] of [
    ['LICENSE', 'LICENSE'],
    ['README.md', 'clients/typescript/README.md'],
  ] as const) {
    expect(readFileSync(join(installed, name), 'utf8')).toBe(readFileSync(join(ROOT, original), 'utf8'));
  }
});

test('an agent from a directory supports calls, commands, files, a terminal, logs, restart and delete', async () => {
  await rookery.secrets.set('word', 'hidden');
  const agent = await rookery.agents.create({ code: codeOf('app', NODE), env: { WORD: { secret: 'word' } } });
  expect(agent.record).toMatchObject({ status: 'RUNNING', runtime: 'nodejs', name: expect.stringMatching(/^app-/) });
  expect(await agent.invoke({ name: 'Ada' })).toEqual({ text: 'Hello, Ada', calls: 1, env: 'hidden' });

  expect(await agent.exec(['ls', '/code'])).toMatchObject({ returncode: 0, stdout: 'index.mjs\nlib\n' });
  expect((await agent.exec('echo checked')).check().stdout).toBe('checked\n');
  const failed = await agent.exec('echo went wrong >&2; exit 3');
  expect(() => failed.check()).toThrow('the command ended with exit code 3: went wrong');
  expect(() => failed.check()).toThrow(published.CommandFailed);
  await agent.files.makeDirectory('/tmp/in/side');
  await agent.files.write('/tmp/in/side/data', new Uint8Array([1, 2, 255]), { mode: '600' });
  expect([...(await agent.files.read('/tmp/in/side/data'))]).toEqual([1, 2, 255]);
  expect(await agent.files.list('/tmp/in', { recursive: true })).toMatchObject([{ name: 'side' }, { name: 'data' }]);

  const pipes = await agent.terminal({
    command: ['sh', '-c', 'cat; echo "$WHERE" >&2; exit 3'],
    tty: false,
    env: { WHERE: 'err' },
  });
  await pipes.write('typed');
  pipes.endInput();
  const written = { stdout: '', stderr: '' };
  for await (const { from, data } of pipes) written[from] += data.toString();
  expect({ written, returncode: pipes.returncode }).toEqual({
    written: { stdout: 'typed', stderr: 'err\n' },
    returncode: 3,
  });

  for await (const line of agent.follow()) if (line.includes('called by Ada')) break;
  await agent.restart();
  expect(await agent.invoke({ name: 'Ada' })).toMatchObject({ calls: 1 });
  // The log gets the line from a pipe, perhaps after the answer of the call.
  await vi.waitFor(async () => expect(await agent.logs()).toContain('called by Ada'), 20_000);

  expect((await rookery.agents.get(agent.name)).id).toBe(agent.id);
  await agent.delete();
  await expect(agent.refresh()).rejects.toMatchObject({ name: 'RookeryError', status: 404, code: 404 });
});

test('files of a sandbox are described, renamed, removed and watched', async () => {
  const sandbox = await rookery.sandboxes.create();
  const { files } = sandbox;
  await files.makeDirectory('/tmp/dir', { mode: '700' });
  expect(await files.stat('/tmp/dir')).toMatchObject({ type: 'directory', mode: '0700', path: '/tmp/dir' });

  const changes = await files.watch('/tmp/dir', { recursive: true, facts: true });
  const next = async (isWanted: (change: client.FileChange) => boolean) => {
    for (;;) {
      const change = await reading.next();
      if (change.done === true || isWanted(change.value)) return change.value;
    }
  };
  const reading = changes[Symbol.asyncIterator]();
  await files.write('/tmp/dir/first', 'four');
  expect(await next(({ name, file }) => name === 'first' && file !== undefined)).toMatchObject({ file: { size: 4 } });
  expect(await files.rename('/tmp/dir/first', '/tmp/dir/new/second')).toMatchObject({ name: 'second', size: 4 });
  expect(await next(({ type, name }) => type === 'rename' && name === 'first')).toEqual({
    type: 'rename',
    name: 'first',
  });
  const last = next(() => false);
  changes.close();
  expect(await last).toBeUndefined();

  expect([await files.exists('/tmp/dir/first'), await files.exists('/tmp/dir/new/second')]).toEqual([false, true]);
  for (const _ of ['removed', 'already removed']) await files.remove('/tmp/dir');
  expect(await files.exists('/tmp/dir/new/second')).toBe(false);
  expect(await files.stat('.', { user: 'root' })).toMatchObject({ path: '/root' });
  await expect(files.stat('/tmp/dir')).rejects.toMatchObject({ name: 'RookeryError', status: 404 });
  await expect(files.watch('/etc/passwd')).rejects.toThrow('is not a directory');
  const leaving = new AbortController();
  const left = await files.watch('/tmp', { signal: leaving.signal });
  leaving.abort();
  await expect(left[Symbol.asyncIterator]().next()).rejects.toThrow('abort');
  await sandbox.kill();
  await expect(files.exists('/tmp')).rejects.toMatchObject({ status: 404 });
});

test('an agent has labels and an end, and keeps its memory in a pause', async () => {
  const labels = { client: 'typescript' };
  const code = codeOf('app', NODE);
  const agent = await rookery.agents.create({ code, labels, ttlSeconds: 3600, idleSeconds: 3600 });
  expect(agent.record).toMatchObject({ labels, on_expiry: 'delete', idle_seconds: 3600 });
  const found = [];
  for await (const each of rookery.agents.list({ label: ['client=typescript'] })) found.push(each.id);
  expect(found).toEqual([agent.id]);
  await agent.invoke({ name: 'Ada' });
  await agent.pause();
  expect(agent.record).toMatchObject({ status: 'PAUSED' });
  await expect(agent.invoke({ name: 'Ada' })).rejects.toThrow('is paused');
  expect([await agent.resume(), await agent.resume()]).toEqual([true, false]);
  expect(await agent.invoke({ name: 'Ada' })).toMatchObject({ calls: 2 });
  await agent.setTtl(0);
  expect(agent.record.expires_at).toBeUndefined();
  await agent.setTtl(1);
  await vi.waitFor(() => expect(agent.refresh()).rejects.toMatchObject({ status: 404 }), 20_000);
});

test('code runs in a sandbox that keeps its names', async () => {
  const once = await rookery.sandboxes.runCode('print("out"); 1 + 1');
  expect({ out: once.stdout, text: once.text, error: once.error }).toEqual({
    out: 'out\n',
    text: '2',
    error: undefined,
  });
  await using sandbox = await rookery.sandboxes.create({
    template: 'code-interpreter-v1',
    labels: { of: 'typescript' },
  });
  await sandbox.runCode('x = 5');
  expect((await sandbox.runCode('x + 1', { env: { A: 'b' } })).text).toBe('6');
  expect((await sandbox.runCode('1 / 0')).error).toMatchObject({ name: 'ZeroDivisionError' });
  const found = [];
  for await (const each of rookery.sandboxes.list({ labels: { of: 'typescript' } })) found.push(each.id);
  expect(found).toEqual([sandbox.id]);
});

test('forks of a sandbox have its files', async () => {
  await using sandbox = await rookery.sandboxes.create({ env: { A: 'a' } });
  await sandbox.files.write('/home/user/kept', 'of the first');
  const forks = await sandbox.fork({ count: 2, name: 'typescript-fork', env: { B: 'b' }, ttlSeconds: 600 });
  expect(forks.map(({ name }) => name)).toEqual(['typescript-fork-1', 'typescript-fork-2']);
  for (const fork of forks) {
    expect(String(await fork.files.read('/home/user/kept'))).toBe('of the first');
    expect((await fork.exec('echo $A $B')).stdout).toBe('a b\n');
    await fork.kill();
  }
  await using taken = await rookery.sandboxes.create({ name: 'typescript-taken-2' });
  const failing = rookery.sandboxes.fork(sandbox.id, { count: 2, name: 'typescript-taken' });
  await expect(failing).rejects.toBeInstanceOf(published.Conflict);
  await expect(failing).rejects.toThrow(`a fork did not start: `);
  const left = [];
  for await (const each of rookery.sandboxes.list()) if (each.name.startsWith('typescript-taken')) left.push(each.id);
  expect(left).toEqual([taken.id]);
});

test('a create with a lost answer is repeated and makes only one agent', async () => {
  const proxy = await startLossyProxy(served.frontendUrl);
  try {
    const throughProxy = new published.Rookery({ url: proxy.url });
    await using agent = await throughProxy.agents.create({ name: 'once', code: codeOf('app', NODE) });
    expect(proxy.lost()).toBe(1);
    const found: string[] = [];
    for await (const { id } of rookery.agents.list({ limit: 1 })) found.push(id);
    expect(found).toEqual([agent.id]);

    const keyed = { code: codeOf('app', NODE), idempotencyKey: 'one of its own' };
    await using first = await rookery.agents.create(keyed);
    expect((await rookery.agents.create(keyed)).id).toBe(first.id);
    throughProxy.close();
  } finally {
    proxy.close();
  }
});

test('clients that get or create an agent at the same time get the same agent', async () => {
  const wanted = { name: 'shared', code: codeOf('app', NODE) };
  const agents = await Promise.all(Array.from({ length: 5 }, () => rookery.agents.getOrCreate(wanted)));
  expect(new Set(agents.map(({ id }) => id)).size).toBe(1);
  for (const agent of agents) expect(await agent.invoke({ name: 'Ada' })).toMatchObject({ text: 'Hello, Ada' });
  await agents[0]?.delete();
});

test('the history lists calls over pages with filters and returns one call', async () => {
  await using agent = await rookery.agents.create({ code: codeOf('app', NODE) });
  for (const name of ['Ada', 'Grace']) await agent.invoke({ name });
  await agent.invoke({ fail: true }, { traceId: 'failed-in-history' }).catch(() => undefined);
  const listed = async (options: client.CallQuery) => {
    const found: client.wire.CallRecord[] = [];
    for await (const call of rookery.calls.list({ agent: agent.id, ...options })) found.push(call);
    return found;
  };
  await vi.waitFor(async () => expect(await listed({ limit: 1 })).toHaveLength(3), 20_000);
  const [failed, ...others] = await listed({ outcome: 'error' });
  expect(others).toEqual([]);
  expect(failed).toMatchObject({ kind: 'agent', agent_id: agent.id, trace_id: 'failed-in-history' });
  expect(await listed({ trace_id: 'failed-in-history', after: '1h' })).toEqual([failed]);
  const [byText] = await listed({ text: 'Grace' });
  expect(await rookery.calls.get(byText?.id ?? '')).toMatchObject({ ...byText, input: '{"name":"Grace"}' });
  await expect(rookery.calls.get('unknown')).rejects.toMatchObject({ status: 404 });
});

test('the history is followed with filters until the loop ends', async () => {
  await using agent = await rookery.agents.create({ code: codeOf('app', NODE) });
  let isFollowed = false;
  const failing = vi.waitUntil(async () => {
    await agent.invoke({ name: 'Ada' });
    await agent.invoke({ fail: true }).catch(() => undefined);
    return isFollowed;
  }, LIVE_MS);
  for await (const call of rookery.calls.follow({ agent: agent.id, outcome: 'error' })) {
    expect(call).toMatchObject({ agent_id: agent.id, outcome: 'error' });
    isFollowed = true;
    break;
  }
  await failing;
});

test('an error is a RookeryError with code, message, status, trace id and advice', async () => {
  await using agent = await rookery.agents.create({ name: 'faulty', code: codeOf('app', NODE) });
  const failing = agent.invoke({ fail: true }, { traceId: 'told-by-the-caller' });
  const failure = (await failing.catch(error => error)) as client.RookeryError;
  expect(failure).toBeInstanceOf(published.RookeryError);
  expect(failure).toBeInstanceOf(published.ExecutionFailed);
  expect(failure).toMatchObject({ status: 500, code: 500, innerCode: 4002, traceId: 'told-by-the-caller' });
  await expect(agent.invoke({ hang: true }, { runMs: 50 })).rejects.toBeInstanceOf(published.Timeout);
  expect(failure.message).toContain('asked to');

  const taken = await rookery.agents.create({ name: 'faulty', code: codeOf('app', NODE) }).catch(error => error);
  expect(taken).toMatchObject({ status: 409, body: { instance_id: agent.id } });
  expect(taken).toBeInstanceOf(published.Conflict);

  const nowhere = new published.Rookery({ url: 'http://127.0.0.1:1', retries: 0 });
  await expect(nowhere.agents.get('x')).rejects.toThrow('http://127.0.0.1:1 cannot be reached: nothing listens there');
  await expect(agent.invoke({}, { signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow('enough');
  await expect(agent.exec('sleep 60', { timeoutMs: 50 })).rejects.toThrow('took longer than its timeout');
});

test(
  'a function is registered, called, streamed, called asynchronously, published and deleted, with events',
  async () => {
    const ends = new AbortController();
    const events = rookery.events.follow({ signal: ends.signal });
    expect((await events.next()).value).toMatchObject({ type: 'hello' });
    const python = `python${(await findInterpreters()).at(-1)?.version}`;
    const code = codeOf('function', {
      'handler.py': `def handle(event, context):
    if 'words' in event:
        stream = context.get_stream()
        for word in event['words']:
            stream.write(word)
        return 'end'
    if 'fail' in event:
        raise ValueError(event['fail'])
    return {'sum': sum(event['numbers'])}
`,
    });
    const fn = await rookery.functions.register('add', { code, runtime: python });
    expect(await fn.invoke({ numbers: [1, 2] })).toEqual({ sum: 3 });
    const pieces: string[] = [];
    for await (const piece of fn.stream({ words: ['one', 'two'] })) pieces.push(piece);
    expect(pieces).toEqual(['one', 'two', 'end']);
    expect(await (await fn.start({ numbers: [4] })).result()).toEqual({ sum: 4 });
    await expect((await fn.start({ fail: 'later' })).result()).rejects.toMatchObject({ code: 4002 });
    await expect(fn.invoke({ fail: 'now' })).rejects.toMatchObject({ status: 500, code: 4002 });

    const inputs = Array.from({ length: 20 }, (_, at) => ({ numbers: [at, 1] }));
    const sums = [];
    for await (const { sum } of fn.map<{ sum: number }>(inputs, { concurrency: 4 })) sums.push(sum);
    expect(sums).toEqual(inputs.map((_, at) => at + 1));
    const both = [];
    for await (const one of fn.map([{ fail: 'this one' }, { numbers: [] }], { returnErrors: true })) both.push(one);
    expect(both).toMatchObject([{ code: 4002, message: expect.stringContaining('this one') }, { sum: 0 }]);
    await expect(fn.map([{ fail: 'this one' }]).next()).rejects.toMatchObject({ code: 4002 });
    expect(await (await fn.spawn({ numbers: [4] })).result()).toEqual({ sum: 4 });

    const kept = await rookery.functions.deploy('add', { code, runtime: python });
    expect(kept.record.revisionId).toBe(fn.record.revisionId);
    const changed = await rookery.functions.deploy('add', { code, runtime: python, timeout: 30 });
    expect(changed.record).toMatchObject({ timeout: 30, revisionId: expect.not.stringMatching(fn.record.revisionId) });
    expect((await rookery.functions.deploy('demo@added', { code, runtime: python })).name).toBe('0@demo@added');
    await (await rookery.functions.get('demo@added')).delete();

    const published = await changed.publish('v1');
    expect(published.urn).toMatch(/:v1$/);
    await expect(rookery.functions.register('add', { code, runtime: python })).rejects.toMatchObject({ code: 4101 });
    const names: string[] = [];
    for await (const { name } of rookery.functions.list()) names.push(name);
    expect(names).toContain('0@default@add');
    for await (const { type, data } of events) if (type === 'ready' && data.owner === 'function') break;
    for await (const { type, data } of rookery.events.follow({ function: 'default@add', recent: 4096 })) {
      if (type !== 'hello') expect(data.function).toContain('0@default@add');
      if (type === 'ready') break;
    }
    ends.abort();
    await published.delete();
    await fn.delete();
    await expect(rookery.functions.get('add')).rejects.toMatchObject({ code: 4115 });
  },
  LIVE_MS,
);

test('a job runs in a copy of a directory', async () => {
  const id = await rookery.jobs.submit('cat input', { code: codeOf('job', { input: 'from the directory\n' }) });
  const lines: string[] = [];
  for await (const line of rookery.jobs.follow(id)) lines.push(line);
  expect(lines.join('\n')).toContain('from the directory');
  expect(await rookery.jobs.wait(id)).toMatchObject({ status: 'SUCCEEDED' });
  await rookery.jobs.delete(id);
  const nightly = { params: { id: 'client-nightly' }, body: { cron: '0 3 1 1 *', job: { entrypoint: 'true' } } };
  for (const _ of ['made', 'replaced']) {
    expect(await rookery.call('putJobSchedule', nightly)).toMatchObject({ schedule_id: 'client-nightly' });
  }
  await rookery.call('deleteJobSchedule', { params: nightly.params });
});

test.each([
  ['hello.mjs', 'docs/guides/clients.md'],
  ['readme.mjs', 'README.md'],
])('the program %s of %s prints the output that the page shows', async (file, page) => {
  const { source, prints } = programOfPage(file, page);
  writeFileSync(join(scratch, file), source);
  cpSync(join(ROOT, 'examples'), join(scratch, 'examples'), { recursive: true });
  const env = { ROOKERY_ADDRESS: served.frontendUrl };
  const done = await run(process.execPath, [file], { cwd: scratch, capture: true, env });
  expect(done).toEqual({ code: 0, output: prints });
});

test('the types of the client need no package but @types/node, and reject unknown options', async () => {
  const program = join(scratch, 'user.ts');
  writeFileSync(
    program,
    `import { Rookery, type wire } from '@rookery/client';
export async function first(): Promise<wire.Agent | undefined> {
  using rookery = new Rookery();
  for await (const agent of rookery.agents.list()) return agent.record;
  // @ts-expect-error: there is no such option
  await rookery.agents.create({ coed: '.' });
  return undefined;
}
`,
  );
  const args = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2023'];
  const types = [
    '--lib',
    'es2023,esnext.disposable',
    '--types',
    'node',
    '--typeRoots',
    join(ROOT, 'node_modules/@types'),
  ];
  const checked = await run(bin('tsc'), [...args, ...types, program], { cwd: scratch, capture: true });
  expect(checked).toEqual({ code: 0, output: '' });
});
