import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ownName } from '../../lib/process-name.ts';
import { FrameSocket } from './frame-socket.ts';
import type { ProcessSandbox } from './handle.ts';
import { askToEnd, watchInit } from './init.ts';

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

function sandboxOf(process: ProcessSandbox['init']): ProcessSandbox {
  const told = { instanceId: 'one', directory, init: process, groups: { paths: {}, versions: {} } };
  return { ...told, address: null, hasOwnNetwork: false, portMappings: [] };
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
