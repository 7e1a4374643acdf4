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
/** Both ends of the connection: the end of the service, then the end of init. */
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

/** Starts a process that a fake group directory lists as its member. */
function startInGroup() {
  const child = spawn('cat', { stdio: ['pipe', 'pipe', 'ignore'] });
  const group = join(directory, 'group');
  mkdirSync(group);
  writeFileSync(join(group, 'cgroup.procs'), `${child.pid}\n`);
  // The fake group becomes empty when its only process exits.
  child.once('exit', () => writeFileSync(join(group, 'cgroup.procs'), ''));
  return { child, group };
}

test('an aborted watch fails at once instead of checking whether the sandbox has ended', async () => {
  const closing = new AbortController();
  const { ended } = watchInit(connection, sandboxOf(ownName()), closing.signal);
  closing.abort();
  connection.close();
  await expect(ended).rejects.toThrow('the driver is closing');
});

test('askToEnd returns the exit that init reports before the connection closes', async () => {
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

test('askToEnd returns null when init closes the connection without a report', async () => {
  const watch = watchInit(connection, sandboxOf({ ...ownName(), startTime: 0 }), new AbortController().signal);
  const asked = askToEnd(watch, 10_000);
  init.close();
  expect(await asked).toBeNull();
  expect(await watch.ended).toMatchObject({ code: null, signal: 'SIGKILL' });
});

test('endSandbox kills the processes in the groups of a sandbox whose init has ended', async () => {
  const { child, group } = startInGroup();
  const exit = once(child, 'exit');
  await endSandbox(sandboxOf({ ...ownName(), startTime: 0 }, { memory: group }), 0, null);
  expect(await exit).toEqual([null, 'SIGKILL']);
});

test('endSandbox kills no process in the groups of a sandbox from before a reboot', async () => {
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
