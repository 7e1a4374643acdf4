import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { PassThrough, Readable, Writable } from 'node:stream';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { receive, send, sendBinary } from './socket-stream.ts';

let server: WebSocketServer;
beforeAll(async () => {
  server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await once(server, 'listening');
});
afterAll(() => {
  for (const socket of server.clients) socket.terminate();
  server.close();
});

async function pair(): Promise<[WebSocket, WebSocket]> {
  const accepted = once(server, 'connection');
  const left = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  await once(left, 'open');
  const [right] = await accepted;
  return [left, right];
}

test('sendBinary splits large input into binary messages, and receive separates text messages', async () => {
  const [left, right] = await pair();
  const sink = new PassThrough({ highWaterMark: 1_000_000 });
  const texts: string[] = [];
  receive(right, sink, text => void texts.push(text));
  let moves = 0;
  const source = Readable.from([Buffer.alloc(600_000, 1), 'end']);
  await sendBinary(left, source, () => void moves++);
  await send(left, 'a text');
  await vi.waitFor(() => expect(texts).toEqual(['a text']));
  const seen: Buffer[] = [];
  for (let chunk = sink.read(); chunk !== null; chunk = sink.read()) seen.push(chunk);
  expect(Buffer.concat(seen).length).toBe(600_003);
  expect(moves).toBe(4);
  left.terminate();
});

test('sendBinary puts the mark in front of each message', async () => {
  const [left, right] = await pair();
  const message = once(right, 'message');
  await sendBinary(left, Readable.from([Buffer.from('x')]), undefined, Buffer.of(2));
  expect((await message)[0]).toEqual(Buffer.from('\x02x'));
  left.terminate();
});

test('receive pauses the socket while the sink is full', async () => {
  const [left, right] = await pair();
  let release: (() => void) | undefined;
  const taken: number[] = [];
  const sink = new Writable({
    highWaterMark: 1,
    write(chunk: Buffer, _encoding, done) {
      taken.push(chunk.length);
      release = done;
    },
  });
  receive(right, sink, () => undefined);
  for (let at = 1; at <= 2; at++) await send(left, Buffer.alloc(at));
  await vi.waitFor(() => expect(right.isPaused).toBe(true));
  expect(taken).toEqual([1]);
  release?.();
  await vi.waitFor(() => {
    release?.();
    expect(taken).toEqual([1, 2]);
  });
  left.terminate();
});

test('sendBinary rejects when the socket closes and when the source fails', async () => {
  const [left] = await pair();
  const source = new PassThrough();
  const sending = sendBinary(left, source);
  left.terminate();
  source.write('x');
  await expect(sending).rejects.toThrow();
  const [other] = await pair();
  const broken = new PassThrough();
  const failing = sendBinary(other, broken);
  broken.destroy(new Error('broken'));
  await expect(failing).rejects.toThrow('broken');
  other.terminate();
});
