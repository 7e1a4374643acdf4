/** Checks the oldest supported JavaScript SDK, 2.14.1. */
import assert from 'node:assert/strict';
import { CommandExitError, Sandbox, TimeoutError } from 'e2b';
import { check, eventually, runChecks } from './checks.mjs';

const sandbox = await Sandbox.create({ timeoutMs: 300_000, envs: { WORD: 'x' } });

check('A7 A4 commands run with users, input, exit codes and time limits', async () => {
  const { commands } = sandbox;
  assert.equal((await commands.run('whoami; echo $WORD')).stdout, 'user\nx\n');
  assert.equal((await commands.run('whoami', { user: 'root' })).stdout, 'root\n');
  const handle = await commands.run('read x; echo "got $x"', { background: true, stdin: true });
  await commands.sendStdin(handle.pid, 'line\n');
  assert.equal((await handle.wait()).stdout, 'got line\n');
  await assert.rejects(commands.run('exit 3'), CommandExitError);
  await assert.rejects(commands.run('sleep 100', { timeoutMs: 1000 }), TimeoutError);
});

check('A5 files are written, read, listed and watched', async () => {
  const { files } = sandbox;
  await files.write('d/1', 'one');
  assert.equal(await files.read('d/1'), 'one');
  assert.deepEqual(
    (await files.list('d')).map(({ name }) => name),
    ['1'],
  );
  const seen = [];
  const watch = await files.watchDir('d', ({ type, name }) => void seen.push(`${type} ${name}`));
  await files.write('d/new', 'x');
  await eventually(() => seen.length >= 3);
  assert.deepEqual(seen, ['create new', 'chmod new', 'write new']);
  await watch.stop();
});

check('A2.7 a sandbox is connected to, paused, listed and killed', async () => {
  const one = await Sandbox.create({ timeoutMs: 60_000 });
  const again = await Sandbox.connect(one.sandboxId);
  assert.equal((await again.commands.run('echo hi')).stdout, 'hi\n');
  assert.equal(await again.isRunning(), true);
  await one.betaPause();
  assert.equal(await one.isRunning(), false);
  const items = await Sandbox.list({ query: { state: ['paused'] } }).nextItems();
  assert.ok(items.some(({ sandboxId }) => sandboxId === one.sandboxId));
  await Sandbox.connect(one.sandboxId);
  assert.equal(await one.isRunning(), true);
  await one.kill();
  assert.equal(await one.isRunning(), false);
});

await runChecks();
