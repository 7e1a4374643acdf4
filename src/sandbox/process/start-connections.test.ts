import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { StartConnections } from './start-connections.ts';
import type { Zygote } from './zygotes.ts';

/** Sockets of a fake zygote, and the connections that each socket has accepted. */
class Sockets implements AsyncDisposable {
  readonly connected = { usual: [] as net.Socket[], later: [] as net.Socket[] };
  readonly #directory = mkdtempSync(join(tmpdir(), 'rookery-starts-'));
  readonly #servers: net.Server[] = [];

  async open(): Promise<Zygote> {
    const listen = async (kind: 'usual' | 'later') => {
      const path = join(this.#directory, kind);
      const server = net.createServer(socket => this.connected[kind].push(socket.resume()));
      this.#servers.push(server);
      await new Promise<void>(resolve => server.listen(path, resolve));
      return path;
    };
    const startSockets = { usual: await listen('usual'), later: await listen('later'), own: '', none: '' };
    return { name: 'py3.11-a', startSockets } as Zygote;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of [...this.connected.usual, ...this.connected.later]) socket.destroy();
    await Promise.all(this.#servers.map(server => new Promise(resolve => server.close(resolve))));
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

/** Reserves a connection `times` times and waits until the zygote has accepted one. */
async function reserved(sockets: Sockets, times = 1) {
  const zygote = await sockets.open();
  const starts = new StartConnections();
  for (let asked = 0; asked < times; asked += 1) starts.reserve(zygote);
  await vi.waitFor(() => expect(sockets.connected.later).toHaveLength(1));
  return { zygote, starts };
}

test('reserve opens one connection for the next usual start, and take returns the connection once', async () => {
  await using sockets = new Sockets();
  const { zygote, starts } = await reserved(sockets, 3);
  // This side is notified of the connection a turn later.
  for (let turns = 0; turns < 4; turns += 1) await turn();
  const first = await starts.connect(zygote, 'usual');
  first?.send({ first: true });
  const [peer] = sockets.connected.later;
  await vi.waitFor(() => expect(peer?.bytesRead).toBeGreaterThan(0));
  expect(sockets.connected.usual).toHaveLength(0);
  const other = await starts.connect(zygote, 'usual');
  await vi.waitFor(() => expect(sockets.connected.usual).toHaveLength(1));
  for (const connection of [first, other]) connection?.close();
  starts.close();
});

test('take skips a reserved connection that has ended', async () => {
  await using sockets = new Sockets();
  const { zygote, starts } = await reserved(sockets);
  sockets.connected.later[0]?.destroy();
  await vi.waitFor(async () => {
    (await starts.connect(zygote, 'usual'))?.close();
    expect(sockets.connected.usual.length).toBeGreaterThan(0);
  });
  starts.close();
});

test('close ends the reserved connection, and reserve opens none afterwards', async () => {
  await using sockets = new Sockets();
  const { zygote, starts } = await reserved(sockets);
  starts.close();
  starts.reserve(zygote);
  await vi.waitFor(() => expect(sockets.connected.later[0]?.destroyed).toBe(true));
  expect(sockets.connected.later).toHaveLength(1);
});

test('take returns null when no zygote is listening', async () => {
  const starts = new StartConnections();
  const startSockets = { usual: '/nowhere/a', later: '/nowhere/b', own: '/nowhere/c', none: '/nowhere/d' };
  const zygote = { name: 'py3.11-a', startSockets } as Zygote;
  expect(await starts.connect(zygote, 'own')).toBeNull();
  expect(await starts.connect(zygote, 'usual')).toBeNull();
  starts.close();
});
