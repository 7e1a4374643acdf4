import fc from 'fast-check';
import { expect, test } from 'vitest';
import { everyFrame } from '../../test/fakes/every-frame.ts';
import { LIMITS } from '../core/limits.ts';
import { encodeFrame, type Frame, FrameReader, writeHeader } from './frames.ts';

const frames = fc.array(
  fc.record({
    type: fc.integer({ min: 1, max: 255 }),
    callId: fc.integer({ min: 0, max: 0xffff_ffff }),
    payload: fc.uint8Array({ maxLength: 300 }),
  }),
  { maxLength: 8 },
);

function readAll(chunks: readonly Buffer[]): Frame[] {
  const read: Frame[] = [];
  const reader = new FrameReader(everyFrame(frame => void read.push(frame)));
  for (const chunk of chunks) reader.push(chunk);
  return read;
}

test('any encoded frame is read again, however the bytes are cut', () => {
  fc.assert(
    fc.property(frames, fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }), (sent, sizes) => {
      const bytes = Buffer.concat(sent.map(frame => encodeFrame(frame.type, frame.callId, Buffer.from(frame.payload))));
      const chunks: Buffer[] = [];
      for (let offset = 0, next = 0; offset < bytes.length; next++) {
        const size = sizes[next % sizes.length] as number;
        chunks.push(bytes.subarray(offset, offset + size));
        offset += size;
      }
      expect(readAll(chunks).map(frame => ({ ...frame, payload: [...frame.payload] }))).toEqual(
        sent.map(frame => ({ ...frame, payload: [...frame.payload] })),
      );
    }),
  );
});

test('a text payload is UTF-8 and counted in bytes', () => {
  const [frame] = readAll([encodeFrame(8, 7, 'é')]);
  expect(frame).toMatchObject({ type: 8, callId: 7 });
  expect(frame?.payload.toString()).toBe('é');
});

test('the reader accepts the largest frame and throws for a larger or impossible length', () => {
  const largest = Buffer.alloc(LIMITS.frameBytes + 4);
  writeHeader(largest, 6, 1, LIMITS.frameBytes - 5);
  expect(readAll([largest.subarray(0, 100_000), largest.subarray(100_000)])[0]?.payload.length).toBe(
    LIMITS.frameBytes - 5,
  );
  for (const length of [LIMITS.frameBytes + 1, 0xffff_ffff, 4, 0]) {
    const header = Buffer.alloc(9);
    header.writeUInt32BE(length);
    expect(() => readAll([header])).toThrow(RangeError);
  }
});

test('an unwanted payload is dropped while it arrives', () => {
  const read: Frame[] = [];
  const reader = new FrameReader({
    ...everyFrame(frame => void read.push(frame)),
    admit: (_type, callId) => callId !== 1,
  });
  const sent = Buffer.concat([encodeFrame(6, 1, Buffer.alloc(100_000)), encodeFrame(6, 2, 'wanted')]);
  for (let at = 0; at < sent.length; at += 7001) reader.push(sent.subarray(at, at + 7001));
  expect(read.map(({ callId, payload }) => [callId, payload.toString()])).toEqual([
    [1, ''],
    [2, 'wanted'],
  ]);
});

test('unfinished frames of all readers share one bound: the oldest are dropped, and new ones are read', () => {
  const abandoned: number[] = [];
  const head = Buffer.alloc(10);
  writeHeader(head, 6, 1, LIMITS.frameBytes - 5);
  const most = Math.floor(LIMITS.unfinishedFrameBytes / LIMITS.frameBytes);
  const readers = Array.from({ length: most + 3 }, (_, index) => {
    const receiver = { ...everyFrame(() => undefined), abandon: () => void abandoned.push(index) };
    const reader = new FrameReader(receiver);
    reader.push(head);
    return reader;
  });
  expect(abandoned.length).toBeGreaterThanOrEqual(3);
  expect(abandoned.length).toBeLessThanOrEqual(4);
  for (const reader of readers) reader.close();
  const late: Frame[] = [];
  const reader = new FrameReader(everyFrame(frame => void late.push(frame)));
  const whole = encodeFrame(6, 1, Buffer.alloc(100_000));
  reader.push(whole.subarray(0, 50_000));
  reader.push(whole.subarray(50_000));
  expect(late).toHaveLength(1);
});
