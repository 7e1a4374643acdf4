import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ownName } from '../../lib/process-name.ts';
import { FrameSocket } from './frame-socket.ts';
import type { ProcessSandbox } from './handle.ts';
import { askToEnd, endSandbox, watchInit } from './init.ts';

const EXIT = { code: 0, signal: null, oomKilled: false, atMs: 1 };

let directory: string;
let server: net.Server;
/** The connection to init, and the side of init. */
let connection: FrameSocket;
let init: FrameSocket;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-init-'));
  const accepted = new Promise<FrameSocket>(resolve => {
    server = net.createServer(socket => resolve(FrameSocket.of(socket)));
  });
  const path = join(directory, 'init.sock');
  await new Promise<void>(resolve => server.listen(path, resolve));
  connection = await FrameSocket.connect(path);
  init = await accepted;
});

afterEach(async () => {
  connection.close();
  init.close();
  await new Promise(resolve => server.close(resolve));
  rmSync(directory, { recursive: true });
});

function sandboxOf(process: ProcessSandbox['init'], paths: Readonly<Record<string, string>> = {}): ProcessSandbox {
  const told = { instanceId: 'one', directory, init: process, groups: { paths, versions: {} } };
  return { ...told, address: null, hasOwnNetwork: false, portMappings: [] };
}

/** A process in what looks like a group. */
function startInGroup() {
  const child = spawn('cat', { stdio: ['pipe', 'pipe', 'ignore'] });
  const group = join(directory, 'group');
  mkdirSync(group);
  writeFileSync(join(group, 'cgroup.procs'), `${child.pid}\n`);
  // A group has nobody in it any more when the last has ended.
  child.once('exit', () => writeFileSync(join(group, 'cgroup.procs'), ''));
  return { child, group };
}

test('who closes does not look whether each sandbox that it watched has ended: those that live on would be looked at for seconds', async () => {
  const closing = new AbortController();
  const { ended } = watchInit(connection, sandboxOf(ownName()), closing.signal);
  closing.abort();
  connection.close();
  await expect(ended).rejects.toThrow('nobody watches one any more');
});

test('init that is asked to end has told it before it is gone: its end is that of the connection', async () => {
  const watch = watchInit(connection, sandboxOf(null), new AbortController().signal);
  const [closed, ended] = [vi.fn(), vi.fn()];
  void watch.ended.then(ended);
  const asked = askToEnd(watch, 10_000);
  expect(await init.nextMessage()).toEqual({ op: 'stop', graceMs: 10_000 });
  init.send({ exit: EXIT });
  const told = await asked;
  expect(told?.exit).toEqual(EXIT);
  void told?.closed.then(closed);
  await new Promise(resolve => setImmediate(resolve));
  expect([closed.mock.calls, ended.mock.calls]).toEqual([[], []]);
  init.close();
  expect(await watch.ended).toEqual(EXIT);
  expect(closed).toHaveBeenCalledOnce();
});

test('init that ends without a word has told nothing', async () => {
  const watch = watchInit(connection, sandboxOf({ ...ownName(), startTime: 0 }), new AbortController().signal);
  const asked = askToEnd(watch, 10_000);
  init.close();
  expect(await asked).toBeNull();
  expect(await watch.ended).toMatchObject({ code: null, signal: 'SIGKILL' });
});

test('what runs in the groups of a sandbox whose init has ended is killed', async () => {
  const { child, group } = startInGroup();
  const exit = once(child, 'exit');
  await endSandbox(sandboxOf({ ...ownName(), startTime: 0 }, { memory: group }), 0, null);
  expect(await exit).toEqual([null, 'SIGKILL']);
});

test('a sandbox of before the machine began anew has no groups: what is in those of its names lives on', async () => {
  const { child, group } = startInGroup();
  try {
    await endSandbox(sandboxOf({ ...ownName(), bootId: 'an earlier one' }, { memory: group }), 0, null);
    child.stdin.write('are you there');
    const [said] = await once(child.stdout, 'data');
    expect(String(said)).toBe('are you there');
  } finally {
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
});
