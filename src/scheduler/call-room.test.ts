import { expect, test } from 'vitest';
import { CallRoom } from './call-room.ts';

test('a call has a place below the waiting bound, and while the bytes of open and of unsent bodies leave room', () => {
  const room = new CallRoom({ maxWaitingCalls: 2, maxBytes: 100 });
  expect(room.hasPlace(1, 0, 100)).toBe(true);
  expect(room.hasPlace(2, 0, 1)).toBe(false);
  expect(room.hasPlace(0, 0, 101)).toBe(false);
  expect(room.hasPlace(0, 60, 41)).toBe(false);
  room.enter(60);
  expect(room.hasPlace(0, 0, 40)).toBe(true);
  expect(room.hasPlace(0, 0, 41)).toBe(false);
  room.leave(60);
  expect(room.hasPlace(0, 0, 100)).toBe(true);
});

test('an agent that runs nothing has a negative number of waiting calls, and a place', () => {
  expect(new CallRoom({ maxWaitingCalls: 0, maxBytes: 1 }).hasPlace(-1, 0, 0)).toBe(true);
});

test('idle resolves when the last open call ends, and at once when there is none', async () => {
  const room = new CallRoom({ maxWaitingCalls: 1, maxBytes: 1 });
  await room.idle(1000);
  room.enter(0);
  room.enter(0);
  let isIdle = false;
  const idle = room.idle(60_000).then(() => {
    isIdle = true;
  });
  room.leave(0);
  await Promise.resolve();
  expect(isIdle).toBe(false);
  room.leave(0);
  await idle;
  expect(room.openCalls).toBe(0);
});

test('idle gives up after its time', async () => {
  const room = new CallRoom({ maxWaitingCalls: 1, maxBytes: 1 });
  room.enter(0);
  await room.idle(10);
  await room.idle(0);
  expect(room.openCalls).toBe(1);
});
