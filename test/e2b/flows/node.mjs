/** Checks the newest JavaScript SDK. */
import assert from 'node:assert/strict';
import { Sandbox as Interpreter } from '@e2b/code-interpreter';
import { CommandExitError, FileType, NotFoundError, Sandbox, SandboxNotFoundError, TimeoutError } from 'e2b';
import { check, eventually, runChecks } from './checks.mjs';

const sandbox = await Sandbox.create({ timeoutMs: 600_000, envs: { WORD: 'x' }, metadata: { kind: 'node' } });
const { commands, files, pty } = sandbox;

check('A7 A2.1 a sandbox is created, described, listed and killed', async () => {
  const metadata = { mark: `${Math.random()}`, odd: 'a b&c=ü%' };
  const one = await Sandbox.create({ timeoutMs: 60_000, metadata });
  const info = await one.getInfo();
  assert.deepEqual([info.sandboxId, info.name, info.state], [one.sandboxId, 'base', 'running']);
  assert.deepEqual(info.metadata, metadata);
  const items = await Sandbox.list({ query: { metadata } }).nextItems();
  assert.deepEqual(
    items.map(({ sandboxId }) => sandboxId),
    [one.sandboxId],
  );
  await one.setTimeout(100_000);
  assert.equal(await one.isRunning(), true);
  assert.equal(await one.kill(), true);
  assert.equal(await Sandbox.kill(one.sandboxId), false);
  assert.equal(await one.isRunning(), false);
  await assert.rejects(Sandbox.connect(one.sandboxId), SandboxNotFoundError);
});

check('A4 commands run with users, input, variables and exit codes', async () => {
  assert.equal((await commands.run('whoami; pwd; echo $WORD')).stdout, 'user\n/home/user\nx\n');
  assert.equal((await commands.run('whoami', { user: 'root' })).stdout, 'root\n');
  const handle = await commands.run('cat', { background: true, stdin: true });
  await commands.sendStdin(handle.pid, 'hello\n');
  await commands.closeStdin(handle.pid);
  assert.equal((await handle.wait()).stdout, 'hello\n');
  const failure = await commands.run('echo out; echo err >&2; exit 3').catch(error => error);
  assert.ok(failure instanceof CommandExitError);
  assert.deepEqual([failure.exitCode, failure.stdout, failure.stderr], [3, 'out\n', 'err\n']);
  const results = await Promise.all(Array.from({ length: 20 }, (_, number) => commands.run(`echo ${number}`)));
  assert.deepEqual(
    results.map(({ stdout }) => stdout),
    Array.from({ length: 20 }, (_, number) => `${number}\n`),
  );
});

check('A4.2 the end of the time of a command is a TimeoutError', async () => {
  await assert.rejects(commands.run('sleep 100', { timeoutMs: 1000 }), TimeoutError);
});

check('A4.3 A4.4 a command goes on when its client leaves, and can be connected to and killed', async () => {
  const handle = await commands.run('read x; echo "got $x"; exit 4', { background: true, stdin: true, timeoutMs: 0 });
  await handle.disconnect();
  const again = await commands.connect(handle.pid);
  await commands.sendStdin(handle.pid, 'line\n');
  const failure = await again.wait().catch(error => error);
  assert.deepEqual([failure.exitCode, failure.stdout], [4, 'got line\n']);
  const sleeping = await commands.run('sleep 100', { background: true, timeoutMs: 0 });
  assert.ok((await commands.list()).some(({ pid }) => pid === sleeping.pid));
  assert.equal(await sleeping.kill(), true);
  await assert.rejects(sleeping.wait(), CommandExitError);
  assert.equal(await commands.kill(sleeping.pid), false);
});

check('A4.5 5 MiB of output arrive whole', async () => {
  assert.equal((await commands.run("head -c 5242880 /dev/zero | tr '\\0' x")).stdout.length, 5_242_880);
});

check('A4.7 a terminal has its size and can be resized', async () => {
  let text = '';
  const terminal = await pty.create({
    cols: 80,
    rows: 24,
    onData: data => {
      text += new TextDecoder().decode(data);
    },
  });
  await pty.sendInput(terminal.pid, new TextEncoder().encode('stty size\n'));
  await eventually(() => text.includes('24 80'));
  await pty.resize(terminal.pid, { cols: 100, rows: 30 });
  await pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; exit\n'));
  await terminal.wait();
  assert.ok(text.includes('30 100'));
});

check('A5.1 files are written, read, listed, renamed and removed', async () => {
  await files.write([
    { path: 'd/1', data: 'one' },
    { path: 'd/ü 2', data: new TextEncoder().encode('two').buffer },
  ]);
  assert.equal(await files.read('d/1'), 'one');
  assert.equal(await files.read('d/ü 2'), 'two');
  assert.deepEqual(
    (await files.list('d')).map(({ name, type }) => [name, type]),
    [
      ['1', FileType.FILE],
      ['ü 2', FileType.FILE],
    ],
  );
  const blob = new Blob(['x'.repeat(1_000_000)]);
  await files.write('d/blob', blob);
  assert.equal((await files.read('d/blob', { format: 'bytes' })).length, 1_000_000);
  await files.write('d/empty', '');
  assert.equal(await files.read('d/empty'), '');
  await files.rename('d/1', 'd/3');
  assert.deepEqual([await files.exists('d/1'), await files.exists('d/3')], [false, true]);
  await files.remove('d');
  await assert.rejects(files.read('d/3'), NotFoundError);
  assert.deepEqual([await files.makeDir('new'), await files.makeDir('new')], [true, false]);
});

check('A5.5 events of a watch arrive in order, also from new directories', async () => {
  await files.makeDir('watched');
  const seen = [];
  const watch = await files.watchDir('watched', event => void seen.push(`${event.type} ${event.name}`), {
    recursive: true,
  });
  await files.write('watched/new', 'x');
  await eventually(() => seen.length >= 3);
  assert.deepEqual(seen, ['create new', 'chmod new', 'write new']);
  await commands.run('mkdir -p watched/a/b');
  await files.write('watched/a/b/c', 'x');
  await eventually(() => seen.includes('create a/b/c'));
  await watch.stop();
});

check('A1.2 signed URLs download and upload', async () => {
  await files.write('signed file', 'text');
  const down = await fetch(await sandbox.downloadUrl('signed file', { useSignatureExpiration: 60_000 }));
  assert.equal(await down.text(), 'text');
  const form = new FormData();
  form.append('file', new Blob(['up']), 'any');
  const up = await fetch(await sandbox.uploadUrl('up'), { method: 'POST', body: form });
  assert.equal(up.status, 200);
  assert.equal(await files.read('up'), 'up');
});

check('A2.7 a sandbox is paused and connected to with its processes', async () => {
  const one = await Sandbox.create({ timeoutMs: 60_000 });
  const handle = await one.commands.run('sleep 100', { background: true, timeoutMs: 0 });
  await one.pause();
  assert.equal(await one.isRunning(), false);
  const again = await Sandbox.connect(one.sandboxId);
  assert.ok((await again.commands.list()).some(({ pid }) => pid === handle.pid));
  await again.kill();
  await handle.wait().catch(() => undefined);
});

check('A2.10 kill of the sandbox makes waiting commands raise TimeoutError and ends a watch', async () => {
  const one = await Sandbox.create({ timeoutMs: 60_000 });
  let ended = false;
  await one.files.watchDir('/home/user', () => undefined, {
    timeoutMs: 0,
    onExit: () => {
      ended = true;
    },
  });
  const handle = await one.commands.run('sleep 100', { background: true, timeoutMs: 0 });
  const [failure] = await Promise.all([handle.wait().catch(error => error), one.kill()]);
  assert.ok(failure instanceof TimeoutError, String(failure));
  await eventually(() => ended);
});

check('A2.3 a timeout of 0 is refused', async () => {
  await assert.rejects(Sandbox.create({ timeoutMs: 0 }));
});

check('A6 cells run, stream, fail and have contexts', async () => {
  const one = await Interpreter.create({ timeoutMs: 120_000 });
  const lines = [];
  const execution = await one.runCode("print('hi')\n6 * 7", { onStdout: ({ line }) => lines.push(line) });
  assert.deepEqual([execution.text, lines.join('')], ['42', 'hi\n']);
  assert.equal((await one.runCode('1/0')).error.name, 'ZeroDivisionError');
  const context = await one.createCodeContext({ cwd: '/tmp' });
  assert.equal((await one.runCode('import os; os.getcwd()', { context })).text, '/tmp');
  await assert.rejects(one.runCode('while True: pass', { context, timeoutMs: 1000 }), TimeoutError);
  assert.equal((await one.runCode("'next'", { context, timeoutMs: 60_000 })).text, 'next');
  await one.kill();
});

await runChecks();
