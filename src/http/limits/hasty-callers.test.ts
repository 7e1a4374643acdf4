import { Socket } from 'node:net';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { HastyCallers } from './hasty-callers.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

test('HastyCallers delays at most 1024 requests at a time and accepts more when those are done', () => {
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
