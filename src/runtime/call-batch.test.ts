import type net from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { everyFrame } from '../../test/fakes/every-frame.ts';
import { CallBatch } from './call-batch.ts';
import { type Frame, FrameReader } from './frames.ts';

/** Creates a batch whose socket records each write as one entry. */
function keepingSocket() {
  const writes: Buffer[] = [];
  const socket = {
    destroyed: false,
    write: (bytes: Buffer) => writes.push(bytes),
    cork: () => undefined,
    uncork: () => undefined,
  };
  const frames = () => {
    const found: Frame[] = [];
    const reader = new FrameReader(everyFrame(frame => void found.push(frame)));
    for (const bytes of writes) reader.push(bytes);
    return found.map(({ callId, payload }) => [callId, payload.subarray(2 + payload.readUInt16BE(0)).toString()]);
  };
  return { socket, writes, frames, batch: new CallBatch(socket as unknown as net.Socket) };
}

test('CallBatch writes the frames of one turn in one write and in order', async () => {
  const { batch, writes, frames } = keepingSocket();
  for (const id of [1, 2, 3]) batch.add(id, '{}', 2, Buffer.from(`body ${id}`));
  expect(writes).toEqual([]);
  expect(batch.bytes).toBe(3 * (9 + 2 + 2 + 6));
  await turn();
  expect(writes.length).toBe(1);
  expect(batch.bytes).toBe(0);
  expect(frames()).toEqual([1, 2, 3].map(id => [id, `body ${id}`]));
});

test('CallBatch sends a large body at once, after the frames already queued', () => {
  const { batch, frames } = keepingSocket();
  const large = 'x'.repeat(70_000);
  batch.add(1, '{}', 2, Buffer.from('small'));
  batch.add(2, '{}', 2, Buffer.from(large));
  expect(frames()).toEqual([
    [1, 'small'],
    [2, large],
  ]);
});

test('CallBatch flushes a large batch before the end of the turn', () => {
  const { batch, writes } = keepingSocket();
  for (const id of [1, 2, 3]) batch.add(id, '{}', 2, Buffer.alloc(30_000));
  expect(writes.length).toBe(1);
  expect(batch.bytes).toBe(0);
});

test('CallBatch writes nothing to a destroyed socket', () => {
  const { batch, socket, writes } = keepingSocket();
  batch.add(1, '{}', 2, Buffer.from('1'));
  socket.destroyed = true;
  batch.flush();
  expect(writes).toEqual([]);
  expect(batch.bytes).toBe(0);
});
