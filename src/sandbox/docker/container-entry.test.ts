import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { frameOf } from '../../lib/length-frames.ts';
import { AccessConnection } from '../host/access-connection.ts';
import { OpenAccesses } from './container-entry.ts';

let server: Server;
let path: string;
let ends: Map<string, () => void>;
let served: Socket[];

beforeEach(async () => {
  path = join(tmpdir(), `rookery-ways-${randomUUID().slice(0, 8)}`);
  served = [];
  ends = new Map();
  server = createServer(socket => {
    served.push(socket);
    socket.on('error', () => undefined);
    socket.write(frameOf(Buffer.from('{"ok":true}')));
  }).listen(path);
  await once(server, 'listening');
});

afterEach(async () => {
  for (const socket of served) socket.destroy();
  server.close();
  await once(server, 'close');
  rmSync(path, { force: true });
});

/** Resolves when the socket has closed, with or without an error. */
const closed = ({ socket }: AccessConnection) =>
  new Promise<void>(resolve => (socket.closed ? resolve() : socket.once('close', () => resolve())));

const make = () => new OpenAccesses(container => new Promise<void>(resolve => ends.set(container, resolve)));
const open = () => AccessConnection.open(path, [], new AbortController().signal);

test('an open access ends with its own container only', async () => {
  const accesses = make();
  const one = await accesses.add('one', 'files', open);
  const two = await accesses.add('two', 'files', open);
  ends.get('one')?.();
  await closed(one);
  expect(one.failure()).toMatchObject({ code: 'unavailable', message: 'the sandbox ended' });
  expect(two.socket.destroyed).toBe(false);
  two.socket.destroy();
});

test('an access that opens while its container ends is closed too', async () => {
  const connection = await make().add('one', 'dial', async () => {
    ends.get('one')?.();
    return await open();
  });
  await closed(connection);
  expect(connection.failure().code).toBe('unavailable');
});

test('the 65th open file of a container is resource_exhausted, for that container alone, until one closes', async () => {
  const accesses = make();
  const first = await accesses.add('one', 'files', open);
  const files = await Promise.all(Array.from({ length: 63 }, () => accesses.add('one', 'files', open)));
  await expect(accesses.add('one', 'files', open)).rejects.toMatchObject({
    code: 'resource_exhausted',
    message: 'too many files and directories are open in this sandbox (64)',
  });
  const others = [await accesses.add('one', 'dial', open), await accesses.add('two', 'files', open)];
  const gone = new Promise(resolve => first.socket.once('close', resolve));
  first.socket.destroy();
  await gone;
  others.push(await accesses.add('one', 'files', open));
  for (const { socket } of [...files, ...others]) socket.destroy();
});

test('an access that fails to open holds no slot', async () => {
  const accesses = make();
  const refuse = () => Promise.reject(new Error('no'));
  for (let count = 0; count < 65; count += 1) await expect(accesses.add('one', 'files', refuse)).rejects.toThrow('no');
});
