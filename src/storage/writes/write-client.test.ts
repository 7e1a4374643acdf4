import { EventEmitter } from 'node:events';
import type { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { PoolSpec } from '../../core/pool.ts';
import { createPools } from '../../registry/pool-writes.ts';
import { WRITE_OPERATIONS } from '../../server/write-operations.ts';
import { WriteClient } from './write-client.ts';
import type { FromThread, ToThread } from './write-messages.ts';

/** Fake thread that sends only the answers that a test gives. */
class SilentThread extends EventEmitter {
  readonly messages: ToThread[] = [];

  postMessage(message: ToThread): void {
    this.messages.push(message);
  }

  answer(message: FromThread): void {
    this.emit('message', message);
  }
}

let thread: SilentThread;
let client: WriteClient;
beforeEach(() => {
  vi.useFakeTimers();
  thread = new SilentThread();
  client = new WriteClient(thread as unknown as Worker, WRITE_OPERATIONS);
});
afterEach(() => {
  thread.emit('exit', 0);
  vi.useRealTimers();
});

const order = (id: string) => client.write(createPools, [{ id } as PoolSpec]);

test('WriteClient sends the orders of one turn in one message and assigns each answer to its order', async () => {
  const writes = [order('a'), order('b')];
  await vi.advanceTimersByTimeAsync(1);
  expect(thread.messages).toMatchObject([{ orders: [{ 1: 'createPools' }, { 1: 'createPools' }], isLast: false }]);
  const [first, second] = (thread.messages[0] as ToThread).orders.map(([id]) => id) as [number, number];
  thread.answer({
    outcomes: [
      [second, [false]],
      [first, [true]],
    ],
    problem: null,
  });
  expect(await Promise.all(writes)).toEqual([[true], [false]]);
});

test('WriteClient fails an order without a timely answer, ignores the late answer, and continues', async () => {
  const late = expect(order('a')).rejects.toMatchObject({ code: 'unavailable' });
  await vi.advanceTimersByTimeAsync(30_000);
  const next = order('b');
  await vi.advanceTimersByTimeAsync(11_000);
  await late;
  const [first, second] = thread.messages.map(({ orders }) => orders[0]?.[0]) as [number, number];
  thread.answer({
    outcomes: [
      [first, [true]],
      [second, [true]],
    ],
    problem: null,
  });
  expect(await next).toEqual([true]);
});

test('WriteClient reports the problem of the thread', () => {
  expect(client.problem()).toBeNull();
  thread.answer({ outcomes: [], problem: 'the disk' });
  expect(client.problem()).toBe('the disk');
});
