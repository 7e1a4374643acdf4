import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { connectUnix } from './unix-socket.ts';

let directory: string;
let servers: net.Server[];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-unix-socket-'));
  servers = [];
});

afterEach(async () => {
  for (const server of servers) await new Promise(resolve => server.close(resolve));
  rmSync(directory, { recursive: true, force: true });
});

/** Starts a server that sends `name` to each client. */
function listen(name: string, path = join(directory, name)): Promise<string> {
  const server = net.createServer(socket => socket.end(name));
  servers.push(server);
  return new Promise(resolve => server.listen(path, () => resolve(path)));
}

/** Returns the text that the server sends, or the code of the connection error. */
function heard(path: string): Promise<string> {
  return new Promise(resolve => {
    let text = '';
    connectUnix(path)
      .on('data', data => {
        text += data;
      })
      .on('error', error => resolve((error as NodeJS.ErrnoException).code ?? error.message))
      .on('end', () => resolve(text));
  });
}

test('connectUnix connects to a socket, also by a path longer than the kernel accepts', async () => {
  expect(await heard(await listen('mine'))).toBe('mine');
  const deep = join(directory, 'd'.repeat(120));
  mkdirSync(deep);
  // The test binds a socket to a short path and moves the socket to a long path.
  const path = await listen('moved');
  renameSync(path, join(deep, 'moved'));
  expect(await heard(join(deep, 'moved'))).toBe('moved');
});

test('a symbolic link to another socket is not followed, from any owner', async () => {
  const other = await listen('other');
  const path = join(directory, 'runtime.sock');
  for (const target of [other, 'other', `/proc/self/root${other}`]) {
    symlinkSync(target, path);
    expect(await heard(path)).toBe('the path exists and is not a socket');
    unlinkSync(path);
  }
});

test('a link that replaces a known socket is not followed', async () => {
  const other = await listen('other');
  const path = await listen('runtime.sock');
  expect(await heard(path)).toBe('runtime.sock');
  unlinkSync(path);
  symlinkSync(other, path);
  expect(await heard(path)).toMatch(/not a socket/);
});

test('a path that is not a socket is not opened, and a missing path is an error', async () => {
  const file = join(directory, 'file');
  writeFileSync(file, '');
  expect(await heard(file)).toMatch(/not a socket/);
  expect(await heard(directory)).toMatch(/not a socket/);
  expect(await heard(join(directory, 'nothing'))).toBe('ENOENT');
});

test('no descriptor remains of a connection or of a failed one', async () => {
  const path = await listen('mine');
  const before = readdirSync('/proc/self/fd').length;
  for (let count = 0; count < 20; count++) {
    await heard(path);
    await heard(directory);
  }
  expect(readdirSync('/proc/self/fd').length).toBeLessThan(before + 10);
});
