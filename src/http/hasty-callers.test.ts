import { Socket } from 'node:net';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { HastyCallers } from './hasty-callers.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

test('only so many wait at a time, and the next ones when those have', () => {
  const callers = new HastyCallers();
  const sockets = Array.from({ length: 1025 }, () => new Socket());
  for (const socket of sockets) callers.refused(socket);
  const then = vi.fn();
  expect(
    sockets.map(socket => callers.letWait(socket, Number.POSITIVE_INFINITY, then)).filter(waits => !waits),
  ).toHaveLength(1);
  vi.advanceTimersByTime(250);
  expect(then).toHaveBeenCalledTimes(1024);
  expect(callers.letWait(sockets[0] as Socket, Number.POSITIVE_INFINITY, then)).toBe(true);
});
