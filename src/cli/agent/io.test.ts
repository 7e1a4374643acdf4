import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import tar, { type Header } from 'tar-stream';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { SPEC, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { HostAccess } from '../../../test/http/host-access.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { cli, type RunOptions } from '../../../test/parts/cli.ts';
import type { Terminal } from '../shared/io.ts';

const AGENT = newInstance(SPEC);
const roots: string[] = [];
afterAll(() => {
  for (const root of roots) rmSync(root, { recursive: true, force: true });
});

function directory(): string {
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'rookery-cli-io-')));
  roots.push(root);
  return root;
}

interface Bed extends TestFrontend {
  /** Root directory of the sandbox. */
  readonly root: string;
  readonly inside: HostAccess;
  /** Directory of the client's machine. */
  readonly here: string;
  agent(args: readonly string[], options?: RunOptions): ReturnType<typeof cli>;
}

async function bed(): Promise<Bed> {
  const frontend = testFrontend();
  const root = directory();
  const inside = new HostAccess(root);
  frontend.instances.put(AGENT);
  frontend.instances.inside = inside;
  const returncode = () => (inside.hasPrograms ? 0 : 127);
  frontend.instances.onExec = async () => ({ returncode: returncode(), stdout: '', stderr: '', truncated: false });
  const address = await frontend.listen();
  const agent = (args: readonly string[], options: RunOptions = {}) =>
    cli(['agent', ...args], { ...options, environment: { ROOKERY_ADDRESS: address, ...options.environment } });
  return Object.assign(frontend, { root, inside, here: directory(), agent });
}

/** Creates a tree with modes, an empty directory, a symlink and an unusual file name. */
function makeTree(root: string): void {
  mkdirSync(join(root, 'tree/sub/empty'), { recursive: true });
  writeFileSync(join(root, 'tree/run.sh'), '#!/bin/sh\n');
  chmodSync(join(root, 'tree/run.sh'), 0o755);
  writeFileSync(join(root, 'tree/sub/ü "b"'), 'b\0');
  chmodSync(join(root, 'tree/sub/ü "b"'), 0o600);
  symlinkSync('/etc/passwd', join(root, 'tree/link'));
  chmodSync(join(root, 'tree/sub'), 0o750);
}

function expectTree(tree: string, hasLink = true): void {
  expect(readdirSync(tree).sort()).toEqual([...(hasLink ? ['link'] : []), 'run.sh', 'sub']);
  if (hasLink) expect(readlinkSync(join(tree, 'link'))).toBe('/etc/passwd');
  expect(statSync(join(tree, 'run.sh')).mode & 0o777).toBe(0o755);
  expect(statSync(join(tree, 'sub')).mode & 0o777).toBe(0o750);
  expect(readdirSync(join(tree, 'sub')).sort()).toEqual(['empty', 'ü "b"']);
  expect(readFileSync(join(tree, 'sub', 'ü "b"'), 'utf8')).toBe('b\0');
  expect(statSync(join(tree, 'sub', 'ü "b"')).mode & 0o777).toBe(0o600);
}

describe('agent cp into an agent', () => {
  test('agent cp in copies a file into a directory under its own name, or to a path with another name', async () => {
    await using it = await bed();
    writeFileSync(join(it.here, 'a.txt'), 'abc', { mode: 0o640 });
    mkdirSync(join(it.root, 'd'));
    expect(await it.agent(['cp', join(it.here, 'a.txt'), 'hello:/d'])).toEqual({ code: 0, out: '', err: '' });
    await it.agent(['cp', join(it.here, 'a.txt'), `${AGENT.id}:/b.txt`]);
    expect(readFileSync(join(it.root, 'd/a.txt'), 'utf8')).toBe('abc');
    expect(statSync(join(it.root, 'd/a.txt')).mode & 0o777).toBe(0o640);
    expect(readFileSync(join(it.root, 'b.txt'), 'utf8')).toBe('abc');
  });

  test('agent cp in copies a whole directory with modes and links in one stream', async () => {
    await using it = await bed();
    makeTree(it.here);
    expect(await it.agent(['cp', join(it.here, 'tree'), 'hello:/copy'])).toEqual({ code: 0, out: '', err: '' });
    expectTree(join(it.root, 'copy'));
    await it.agent(['cp', join(it.here, 'tree'), 'hello:/copy']);
    expectTree(join(it.root, 'copy/tree'));
    await it.agent(['cp', `${join(it.here, 'tree')}/.`, 'hello:/copy']);
    expectTree(join(it.root, 'copy/tree'));
  });

  test('agent cp in copies files one by one, and reports links as left out, when the sandbox has no tar', async () => {
    await using it = await bed();
    it.inside.hasPrograms = false;
    makeTree(it.here);
    const link = `${join(it.here, 'tree/link')} is not copied: it is a symbolic link, and those need a tar program in the sandbox (and the right to run it).\n`;
    expect(await it.agent(['cp', join(it.here, 'tree'), 'hello:/copy'])).toEqual({ code: 0, out: '', err: link });
    expectTree(join(it.root, 'copy'), false);
    // The second copy finds the directory, so it is stored inside. A source with "/." is merged into the
    // target.
    await it.agent(['cp', join(it.here, 'tree'), 'hello:/copy']);
    expectTree(join(it.root, 'copy/tree'), false);
    await it.agent(['cp', `${join(it.here, 'tree')}/.`, 'hello:/other']);
    await it.agent(['cp', `${join(it.here, 'tree')}/.`, 'hello:/other']);
    expectTree(join(it.root, 'other'), false);
  });

  test('agent cp in reports a directory that cannot be written by tar or by the service', async () => {
    await using it = await bed();
    makeTree(it.here);
    it.inside.programs.set('tar', ['sh', '-c', 'echo "no room left" >&2; exit 2']);
    const full = await it.agent(['cp', join(it.here, 'tree'), 'hello:/copy']);
    expect(full).toMatchObject({ code: 1, err: expect.stringContaining('no room left') });
    writeFileSync(join(it.root, 'file'), '');
    expect(await it.agent(['cp', join(it.here, 'tree'), 'hello:/file/x'])).toMatchObject({ code: 1, out: '' });
  });

  test('agent cp in copies stdin to a file', async () => {
    await using it = await bed();
    await it.agent(['cp', '-', 'hello:/in.txt'], { stdin: 'from stdin' });
    expect(readFileSync(join(it.root, 'in.txt'), 'utf8')).toBe('from stdin');
  });

  test('agent cp in copies an empty file', async () => {
    await using it = await bed();
    writeFileSync(join(it.here, 'e'), '');
    expect(await it.agent(['cp', join(it.here, 'e'), 'hello:/e'])).toMatchObject({ code: 0 });
    expect(statSync(join(it.root, 'e')).size).toBe(0);
  });

  test('agent cp in reports a missing source, and a missing target directory', async () => {
    await using it = await bed();
    writeFileSync(join(it.here, 'a'), 'a');
    const missing = await it.agent(['cp', join(it.here, 'none'), 'hello:/x']);
    expect(missing).toMatchObject({ code: 1, err: expect.stringContaining('none cannot be read') });
    const nowhere = await it.agent(['cp', join(it.here, 'a'), 'hello:/no/x']);
    expect(nowhere).toMatchObject({ code: 1, err: expect.stringContaining('rookery agent exec hello -- mkdir -p') });
  });
});

describe('agent cp out of an agent', () => {
  test('agent cp out copies a file into a directory under its own name, or to a path with another name', async () => {
    await using it = await bed();
    writeFileSync(join(it.root, 'a.txt'), 'abc');
    chmodSync(join(it.root, 'a.txt'), 0o751);
    expect(await it.agent(['cp', 'hello:/a.txt', it.here])).toEqual({ code: 0, out: '', err: '' });
    await it.agent(['cp', 'hello:/a.txt', join(it.here, 'b.txt')]);
    expect(readFileSync(join(it.here, 'a.txt'), 'utf8')).toBe('abc');
    expect(statSync(join(it.here, 'b.txt')).mode & 0o777).toBe(0o751);
  });

  test('agent cp out copies a whole directory with modes and links in one stream', async () => {
    await using it = await bed();
    makeTree(it.root);
    expect(await it.agent(['cp', 'hello:/tree', join(it.here, 'copy')])).toEqual({ code: 0, out: '', err: '' });
    expectTree(join(it.here, 'copy'));
    await it.agent(['cp', 'hello:/tree', join(it.here, 'copy')]);
    expectTree(join(it.here, 'copy/tree'));
  });

  test('agent cp out copies files one by one, and reports links as left out, when the sandbox has no tar', async () => {
    await using it = await bed();
    it.inside.hasPrograms = false;
    makeTree(it.root);
    const link =
      '/tree/link is not copied: it is a symbolic link, and those need a tar program in the sandbox (and the right to run it).\n';
    expect(await it.agent(['cp', 'hello:/tree', join(it.here, 'copy')])).toEqual({ code: 0, out: '', err: link });
    expectTree(join(it.here, 'copy'), false);
    await it.agent(['cp', 'hello:/tree', join(it.here, 'copy')]);
    expectTree(join(it.here, 'copy/tree'), false);
  });

  test('agent cp out writes a file to stdout, and refuses a directory', async () => {
    await using it = await bed();
    writeFileSync(join(it.root, 'a'), 'abc');
    expect(await it.agent(['cp', 'hello:/a', '-'])).toEqual({ code: 0, out: 'abc', err: '' });
    mkdirSync(join(it.root, 'd'));
    expect(await it.agent(['cp', 'hello:/d', '-'])).toMatchObject({ code: 2 });
  });

  test('agent cp out succeeds when the reader of stdout closes early', async () => {
    await using it = await bed();
    writeFileSync(join(it.root, 'a'), Buffer.alloc(8 * 1024 * 1024, 'x'));
    const reader = new AbortController();
    const ran = await it.agent(['cp', 'hello:/a', '-'], { signal: reader.signal, onOut: () => reader.abort() });
    expect(ran).toMatchObject({ code: 0, err: '' });
  });

  test.each<[string, readonly [Partial<Header> & { name: string }, string?][]]>([
    ['a name that leads out', [[{ name: 'a/../../out' }, 'x']]],
    ['a name in another directory', [[{ name: '../out' }, 'x']]],
    ['a file through a link', [[{ name: 'l', type: 'symlink', linkname: '..' }], [{ name: 'l/out' }, 'x']]],
    [
      'a link through a link',
      [[{ name: 'l', type: 'symlink', linkname: '..' }], [{ name: 'l/out', type: 'symlink', linkname: 'x' }]],
    ],
    ['a hard link to a file that the archive lacks', [[{ name: 'out', type: 'link', linkname: '../secret' }]]],
  ])('agent cp out keeps an archive of the sandbox inside the target directory: %s', async (_what, entries) => {
    await using it = await bed();
    mkdirSync(join(it.root, 'd'));
    writeFileSync(join(it.here, 'secret'), 'mine');
    const pack = tar.pack();
    for (const [header, content = ''] of entries) pack.entry(header, content);
    pack.finalize();
    const archive = join(it.root, 'evil.tar');
    writeFileSync(archive, await buffer(pack));
    it.inside.programs.set('tar', ['cat', archive]);
    await it.agent(['cp', 'hello:/d', join(it.here, 'x')]);
    expect(readdirSync(it.here).sort()).toEqual(['secret', 'x']);
    expect(readFileSync(join(it.here, 'secret'), 'utf8')).toBe('mine');
    expect(readdirSync(join(it.here, 'x')).filter(name => name === 'out')).toEqual([]);
  });

  test('agent cp out replaces existing files and links, and refuses to write through a link to a directory', async () => {
    await using it = await bed();
    makeTree(it.root);
    mkdirSync(join(it.here, 'x'));
    writeFileSync(join(it.here, 'mine'), 'mine');
    symlinkSync(join(it.here, 'mine'), join(it.here, 'x/run.sh'));
    expect(await it.agent(['cp', 'hello:/tree/.', join(it.here, 'x')])).toMatchObject({ code: 0 });
    expectTree(join(it.here, 'x'));
    expect(readFileSync(join(it.here, 'mine'), 'utf8')).toBe('mine');
    mkdirSync(join(it.here, 'elsewhere'));
    mkdirSync(join(it.here, 'y'));
    symlinkSync(join(it.here, 'elsewhere'), join(it.here, 'y/sub'));
    const refused = await it.agent(['cp', 'hello:/tree/.', join(it.here, 'y')]);
    expect(refused).toMatchObject({ code: 1, err: expect.stringContaining('nothing is written through it') });
    expect(readdirSync(join(it.here, 'elsewhere'))).toEqual([]);
  });

  test('agent cp out reports a file that tar could not read', async () => {
    await using it = await bed();
    mkdirSync(join(it.root, 'd'));
    it.inside.programs.set('tar', ['sh', '-c', 'echo "cannot open: x" >&2; head -c 1024 /dev/zero; exit 2']);
    const ran = await it.agent(['cp', 'hello:/d', join(it.here, 'x')]);
    expect(ran).toMatchObject({ code: 1, err: expect.stringContaining('cannot open: x') });
  });

  test('agent cp out refuses a file name that leads out of the directory', async () => {
    await using it = await bed();
    it.inside.hasPrograms = false;
    const entry = { path: '/d/..', type: 'file', sizeBytes: 1, mode: 0o644, modifiedAtMs: 0 } as const;
    it.inside.listFiles = async () => ({ entries: [entry], truncated: false });
    mkdirSync(join(it.root, 'd'));
    const ran = await it.agent(['cp', 'hello:/d', join(it.here, 'x')]);
    expect(ran).toMatchObject({ code: 1, err: expect.stringContaining('a name that cannot be used here: ".."') });
  });

  test('agent cp out leaves no new file, and keeps the old file, when the copy breaks off', async () => {
    await using it = await bed();
    writeFileSync(join(it.here, 'a'), 'old');
    writeFileSync(join(it.root, 'a'), 'new');
    const { openFile } = it.inside;
    it.inside.openFile = async (path, signal) => ({
      ...(await openFile.call(it.inside, path, signal)),
      sizeBytes: 100,
    });
    const ran = await it.agent(['cp', 'hello:/a', it.here]);
    expect(ran).toMatchObject({ code: 69, err: expect.stringContaining('/a could not be copied') });
    expect(readdirSync(it.here)).toEqual(['a']);
    expect(readFileSync(join(it.here, 'a'), 'utf8')).toBe('old');
  });

  test('agent cp out reports a missing source, and a missing target directory', async () => {
    await using it = await bed();
    expect(await it.agent(['cp', 'hello:/none', it.here])).toMatchObject({
      code: 1,
      err: expect.stringContaining('/none'),
    });
    writeFileSync(join(it.root, 'a'), 'a');
    const ran = await it.agent(['cp', 'hello:/a', join(it.here, 'no/')]);
    expect(ran).toMatchObject({
      code: 1,
      err: expect.stringMatching(/^The directory .*no\/ does not exist here\. Make it first: mkdir -p/),
    });
  });
});

test.each([
  [['/a', '/b'], 'Name one path here (or "-") and one in an agent'],
  [['a:/x', 'b:/y'], 'Name one path here (or "-") and one in an agent'],
  [['./a:b', '/c:d'], 'Name one path here (or "-") and one in an agent'],
  [['a:', '/x'], 'The path in the agent is missing: a:<path>.'],
  [['', 'a:/x'], 'A path must not be empty'],
])('agent cp %j is refused with exit code 2', async (args, sentence) => {
  const ran = await cli(['agent', 'cp', ...args]);
  expect(ran).toMatchObject({ code: 2, err: expect.stringContaining(sentence) });
});

describe('agent exec -i', () => {
  test('agent exec -i starts the command while stdin is still open', async () => {
    await using it = await bed();
    const stdin = new PassThrough();
    const ran = it.agent(
      ['exec', '-i', 'hello', '-e', 'A=1', '--', 'sh', '-c', 'read a; echo $a $A; cat >&2; exit 7'],
      {
        stdin,
      },
    );
    stdin.write('one\n');
    await expect.poll(() => it.inside.execs.length).toBe(1);
    stdin.end('rest');
    expect(await ran).toEqual({ code: 7, out: 'one 1\n', err: 'rest' });
  });

  test('agent exec -i ends with the command when stdin is still open', async () => {
    await using it = await bed();
    expect(await it.agent(['exec', '-i', 'hello', 'echo', 'hi'], { stdin: new PassThrough() })).toMatchObject({
      code: 0,
      out: 'hi\n',
    });
  });

  test('agent exec -i ends the command at the timeout when stdin is still open', async () => {
    await using it = await bed();
    const ran = await it.agent(['exec', '-i', '--timeout', '1s', 'hello', 'sleep', '600'], {
      stdin: new PassThrough(),
    });
    expect(ran).toEqual({ code: 124, out: '', err: 'The command was ended after 1 s.\n' });
  });

  test('agent exec -i prints both outputs with --json, and reports a reached timeout', async () => {
    await using it = await bed();
    const ran = await it.agent(['exec', '-i', '--json', 'hello', 'cat'], { stdin: 'in' });
    expect(JSON.parse(ran.out)).toEqual({
      returncode: 0,
      stdout: 'in',
      stderr: '',
      truncated: false,
      timed_out: false,
    });
    const late = ['exec', '-i', '--json', '--timeout', '1s', 'hello', 'sh', '-c', 'echo begun; exec sleep 600'];
    const ended = await it.agent(late, { stdin: new PassThrough() });
    expect(ended.code).toBe(124);
    expect(JSON.parse(ended.out)).toMatchObject({ returncode: -1, stdout: 'begun\n', timed_out: true });
  });
});

describe('agent cp to a missing directory', () => {
  test('agent cp to a missing directory names the command that creates the directory', async () => {
    await using it = await bed();
    writeFileSync(join(it.here, 'f'), '');
    const ran = await it.agent(['cp', join(it.here, 'f'), "hello:/data/it's/"]);
    expect(ran).toMatchObject({ code: 1, out: '' });
    expect(ran.err).toContain("rookery agent exec hello -- mkdir -p '/data/it'\\''s'");
    expect(ran.err).not.toContain('files/mkdir');
  });
});

describe('agent shell', () => {
  test('agent shell passes stdin, both outputs and the exit code through pipes', async () => {
    await using it = await bed();
    const ran = await it.agent(
      ['shell', '-e', 'A=1', 'hello', '--', 'sh', '-c', 'cat; echo $A; echo err >&2; exit 7'],
      {
        stdin: 'in ',
      },
    );
    expect(ran).toEqual({ code: 7, out: 'in 1\n', err: 'err\n' });
    expect(it.inside.execs).toMatchObject([{ terminal: null, env: { A: '1' } }]);
  });

  test('agent shell reads options after the agent, and passes options after -- to the command', async () => {
    await using it = await bed();
    await it.agent(['shell', 'hello', '-e', 'A=1', '--', 'test', '-e', '/']);
    expect(it.inside.execs).toMatchObject([{ argv: ['test', '-e', '/'], env: { A: '1' } }]);
  });

  test('agent shell starts a login shell that reads stdin when no command is given', async () => {
    await using it = await bed();
    expect(await it.agent(['shell', 'hello'], { stdin: 'echo $((6 * 7))\n' })).toMatchObject({ code: 0, out: '42\n' });
  });

  test('agent shell sets the terminal to raw mode while it runs, and sends its size and each new size', async () => {
    await using it = await bed();
    const raw: boolean[] = [];
    let resized: (() => void) | undefined;
    let size = { columns: 100, rows: 30 };
    const terminal: Terminal = {
      size: () => size,
      setRaw: isRaw => void raw.push(isRaw),
      onResize(listener) {
        resized = listener;
        return () => {
          resized = undefined;
        };
      },
    };
    const running = it.agent(['shell', 'hello', '--', 'sh', '-c', 'read line; echo "$line"; exit 3'], {
      terminal,
      environment: { TERM: 'screen' },
      stdin: (async function* () {
        await vi.waitFor(() => expect(resized).toBeDefined());
        size = { columns: 120, rows: 40 };
        resized?.();
        await vi.waitFor(() => expect(it.inside.sizes).toHaveLength(1));
        yield 'hello\n';
      })(),
    });
    expect(await running).toEqual({ code: 3, out: 'hello\n', err: '' });
    expect(it.inside.execs).toMatchObject([{ terminal: { columns: 100, rows: 30 }, env: { TERM: 'screen' } }]);
    expect(it.inside.sizes).toEqual([{ columns: 120, rows: 40 }]);
    expect(raw).toEqual([true, false]);
    expect(resized).toBeUndefined();
  });

  test("agent shell adds the agent's name to the first prompt of a login shell in a terminal", async () => {
    await using it = await bed();
    const terminal = { size: () => ({ columns: 80, rows: 24 }), setRaw: vi.fn(), onResize: () => () => undefined };
    await it.agent(['shell', 'hello'], { terminal, stdin: 'exit\n' });
    await it.agent(['shell', 'hello', '--', 'true'], { terminal });
    await it.agent(['shell', '-e', 'PROMPT_COMMAND=date', 'hello'], { terminal, stdin: 'exit\n' });
    const prompts = it.inside.execs.map(({ env }) => env?.PROMPT_COMMAND);
    expect(prompts).toEqual([expect.any(String), undefined, 'date']);
    const script = 'PS1=\'\\w# \'; eval "$PROMPT_COMMAND"; echo "$PS1|"; env | grep PROMPT_COMMAND || echo unset';
    const said = execFileSync('bash', ['--norc', '-c', script], {
      env: { PROMPT_COMMAND: prompts[0] },
      encoding: 'utf8',
    });
    expect(said).toBe('(hello) \\w# |\nunset\n');
  });

  test('agent shell uses pipes with -T when stdin is a terminal', async () => {
    await using it = await bed();
    const terminal = { size: () => ({ columns: 1, rows: 1 }), setRaw: vi.fn(), onResize: () => () => undefined };
    await it.agent(['shell', '-T', 'hello', 'true'], { terminal });
    expect(it.inside.execs).toMatchObject([{ terminal: null }]);
    expect(terminal.setRaw).not.toHaveBeenCalled();
  });

  test('agent shell reports an error of the service', async () => {
    await using it = await bed();
    const ran = await it.agent(['shell', 'hello', '--', '/no/such/program']);
    expect(ran).toMatchObject({ code: 1, err: expect.stringContaining('/no/such/program') });
  });

  test('agent shell ends with exit code 69 when the connection closes without an exit code', async () => {
    await using it = await bed();
    const running = it.agent(['shell', 'hello', '--', 'sleep', '1000']);
    await vi.waitFor(() => expect(it.inside.running).toBe(1));
    await it.app.close();
    expect(await running).toEqual({ code: 69, out: '', err: 'The connection broke: the service stops.\n' });
  });
});

describe('agent port-forward', () => {
  async function forwarded(it: Bed, remote: (socket: Socket) => void) {
    const server = createServer({ allowHalfOpen: true }, remote);
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    const leave = new AbortController();
    const out: string[] = [];
    const running = it.agent(['port-forward', 'hello', `:${port}`], {
      signal: leave.signal,
      onOut: each => out.push(each),
    });
    await vi.waitFor(() => expect(out.join('')).toMatch(/\n$/));
    const [, local, inside] = /^127\.0\.0\.1:(\d+) -> (\d+)\n$/.exec(out.join('')) ?? [];
    expect(Number(inside)).toBe(port);
    return {
      local: Number(local),
      server,
      running,
      async end() {
        leave.abort();
        const ran = await running;
        server.close();
        return ran;
      },
    };
  }

  const conversation = async (port: number, said: string) => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    await once(socket, 'connect');
    socket.end(said);
    return await text(socket);
  };

  test('agent port-forward forwards many connections at once, each with a separate end of stream', async () => {
    await using it = await bed();
    const forward = await forwarded(it, socket => {
      let seen = '';
      socket.on('data', chunk => {
        seen += chunk;
      });
      socket.on('end', () => socket.end(`got ${seen.length} ${seen.slice(0, 10)}`));
    });
    const said = Array.from({ length: 20 }, (_, index) => `${index} `.padEnd(10) + 'x'.repeat(100_000));
    const answers = await Promise.all(said.map(each => conversation(forward.local, each)));
    expect(answers).toEqual(said.map(each => `got ${each.length} ${each.slice(0, 10)}`));
    expect(await forward.end()).toMatchObject({ code: 0, err: '' });
  });

  test('agent port-forward closes the connection and reports the reason when no program listens on the port', async () => {
    await using it = await bed();
    const forward = await forwarded(it, () => undefined);
    await new Promise(resolve => forward.server.close(resolve));
    expect(await conversation(forward.local, '')).toBe('');
    expect(await forward.end()).toMatchObject({ err: expect.stringContaining('nothing listens on port') });
  });

  test.each(['x', '0', '1:0', '70000', '70000:1', '1:2:3', ''])(
    'agent port-forward refuses %j with exit code 2',
    async port => {
      const ran = await cli(['agent', 'port-forward', 'hello', port]);
      expect(ran).toMatchObject({ code: 2, err: expect.stringContaining('[LOCAL:]REMOTE') });
    },
  );

  test('agent port-forward reports a local port that is in use', async () => {
    await using it = await bed();
    const { port } = it.app.server.address() as { port: number };
    const ran = await it.agent(['port-forward', 'hello', `${port}:80`]);
    expect(ran).toMatchObject({ code: 1, err: expect.stringContaining(`Port ${port} of this machine cannot be had`) });
  });
});
