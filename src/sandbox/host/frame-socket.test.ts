import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { frameOf } from '../../lib/length-frames.ts';
import { FrameSocket } from './frame-socket.ts';

describe('FrameSocket', () => {
  let directory: string;
  let server: net.Server;
  let connected: Promise<net.Socket>;
  let path: string;

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-frames-'));
    path = join(directory, 'socket');
    server = net.createServer();
    connected = new Promise(resolve => server.once('connection', resolve));
    await new Promise<void>(resolve => server.listen(path, resolve));
  });

  afterEach(async () => {
    (await connected.catch(() => undefined))?.destroy();
    await new Promise(resolve => server.close(resolve));
    rmSync(directory, { recursive: true, force: true });
  });

  const frame = (text: string) => frameOf(Buffer.from(text));

  test('FrameSocket returns whole frames for any chunk size, and null at the end', async () => {
    const socket = await FrameSocket.connect(path);
    const peer = await connected;
    const bytes = Buffer.concat([frame('{"a":1}'), frame(''), frame('x'.repeat(100_000))]);
    for (const byte of bytes.subarray(0, 20)) peer.write(Buffer.from([byte]));
    peer.end(bytes.subarray(20));
    expect(await socket.nextMessage()).toEqual({ a: 1 });
    expect((await socket.next())?.length).toBe(0);
    expect((await socket.next())?.length).toBe(100_000);
    expect(await socket.next()).toBeNull();
    expect(socket.isEnded).toBe(true);
  });

  test('FrameSocket sends a message as one frame', async () => {
    const socket = await FrameSocket.connect(path);
    socket.send({ op: 'ü' });
    socket.endSending();
    const parts: Buffer[] = [];
    for await (const part of await connected) parts.push(part as Buffer);
    expect(Buffer.concat(parts)).toEqual(frame('{"op":"ü"}'));
    socket.close();
  });

  test('nextMessage fails with unavailable on a frame that is not JSON', async () => {
    const socket = await FrameSocket.connect(path);
    (await connected).write(frame('{'));
    await expect(socket.nextMessage()).rejects.toMatchObject({ code: 'unavailable' });
    socket.close();
  });

  test('FrameSocket ends the connection on a frame that is too large', async () => {
    const socket = await FrameSocket.connect(path);
    (await connected).write(Buffer.from([0xff, 0xff, 0xff, 0xff]));
    expect(await socket.next()).toBeNull();
  });

  test('FrameSocket.connect fails with unavailable when no server listens', async () => {
    await expect(FrameSocket.connect(join(directory, 'absent'))).rejects.toMatchObject({ code: 'unavailable' });
    await FrameSocket.connect(path).then(socket => socket.close());
  });
});
