import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { WebSocket } from 'ws';
import { CLOSE, close, keepAlive } from './web-socket.ts';

/** A stub of the WebSocket members that `keepAlive` and `close` use. */
class StubSocket extends EventEmitter {
  readonly OPEN = 1;
  readyState = 1;
  isPaused = false;
  readonly ping = vi.fn();
  readonly terminate = vi.fn();
  readonly close = vi.fn();
  readonly resume = vi.fn();
}

const newSocket = () => {
  const stub = new StubSocket();
  return { stub, socket: stub as unknown as WebSocket };
};

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('keepAlive', () => {
  test('keepAlive terminates a connection only when pings stay unanswered', () => {
    const { stub, socket } = newSocket();
    keepAlive(socket, 1e9);
    for (let round = 0; round < 5; round++) {
      vi.advanceTimersByTime(30_000);
      stub.emit('pong');
    }
    expect(stub.ping).toHaveBeenCalledTimes(5);
    expect(stub.terminate).not.toHaveBeenCalled();
    vi.advanceTimersByTime(60_000);
    expect(stub.terminate).toHaveBeenCalled();
  });

  test('keepAlive ignores missing pongs while the socket is paused', () => {
    const { stub, socket } = newSocket();
    keepAlive(socket, 1e9);
    stub.isPaused = true;
    vi.advanceTimersByTime(300_000);
    expect(stub.terminate).not.toHaveBeenCalled();
  });

  test('keepAlive closes a socket after its idle time; each activity restarts the time', () => {
    const { stub, socket } = newSocket();
    const moved = keepAlive(socket, 10_000);
    vi.advanceTimersByTime(9_000);
    moved();
    vi.advanceTimersByTime(9_000);
    expect(stub.close).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1_000);
    expect(stub.close).toHaveBeenCalledWith(CLOSE.idle, 'nothing moved for 10 s');
  });

  test('keepAlive never closes an idle socket when the idle time is null', () => {
    const { stub, socket } = newSocket();
    keepAlive(socket, null)();
    for (let round = 0; round < 10_000; round++) {
      vi.advanceTimersByTime(30_000);
      stub.emit('pong');
    }
    expect([stub.close, stub.terminate].map(spy => spy.mock.calls.length)).toEqual([0, 0]);
    stub.emit('close');
    expect(vi.getTimerCount()).toBe(0);
  });

  test('keepAlive clears its timers when the socket closes', () => {
    const { stub, socket } = newSocket();
    keepAlive(socket, 10_000);
    stub.emit('close');
    expect(vi.getTimerCount()).toBe(0);
  });
});

test('close cuts a long reason at a character boundary', () => {
  const { stub, socket } = newSocket();
  close(socket, CLOSE.fault, 'ü'.repeat(100));
  expect(stub.close).toHaveBeenCalledWith(1011, 'ü'.repeat(61));
});
