import { Socket } from 'node:net';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { RetryThrottle } from './retry-throttle.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

test('RetryThrottle delays at most 1024 requests at a time and accepts more when those are done', () => {
  const throttle = new RetryThrottle();
  const sockets = Array.from({ length: 1025 }, () => new Socket());
  for (const socket of sockets) throttle.noteRefusal(socket);
  const then = vi.fn();
  expect(
    sockets.map(socket => throttle.delay(socket, Number.POSITIVE_INFINITY, then)).filter(waits => !waits),
  ).toHaveLength(1);
  vi.advanceTimersByTime(250);
  expect(then).toHaveBeenCalledTimes(1024);
  expect(throttle.delay(sockets[0] as Socket, Number.POSITIVE_INFINITY, then)).toBe(true);
});
