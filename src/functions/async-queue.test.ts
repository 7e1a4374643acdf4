import { describe, expect, it } from 'vitest';
import { AsyncQueue, type QueuedCall } from './async-queue.ts';

const BOUNDS = { maxUnplacedPerFunction: 2, maxUnplacedPerTenant: 3 };
let made = 0;
const callOf = (tenant: string, urn: string): QueuedCall => {
  made += 1;
  return { id: `${tenant}${urn}${made}`, tenant, urn, createdAtMs: made };
};

/** Takes every call that may start now. */
function takeAll(queue: AsyncQueue): QueuedCall[] {
  const taken: QueuedCall[] = [];
  for (let call = queue.next(); call; call = queue.next()) taken.push(call);
  return taken;
}

describe('the order of asynchronous calls', () => {
  it('tenants take turns, functions of a tenant take turns, and calls of a function keep their order', () => {
    const queue = new AsyncQueue({ maxUnplacedPerFunction: 100, maxUnplacedPerTenant: 100 });
    const calls = ['f', 'f', 'g', 'f'].map(urn => callOf('a', urn)).concat(['h', 'h'].map(urn => callOf('b', urn)));
    for (const call of calls) queue.push(call);
    const [f1, f2, g1, f3, h1, h2] = calls;
    expect(takeAll(queue)).toEqual([f1, h1, g1, h2, f2, f3]);
  });

  it('a function whose calls find no slot does not delay other functions', () => {
    const queue = new AsyncQueue(BOUNDS);
    for (const call of Array.from({ length: 5 }, () => callOf('a', 'stuck'))) queue.push(call);
    expect(takeAll(queue)).toHaveLength(2);
    const other = callOf('a', 'free');
    queue.push(other);
    expect(takeAll(queue)).toEqual([other]);
  });

  it('a tenant whose functions are all stuck leaves capacity for other tenants', () => {
    const queue = new AsyncQueue(BOUNDS);
    for (const urn of ['f', 'g', 'h', 'i']) for (let n = 0; n < 3; n++) queue.push(callOf('a', urn));
    expect(takeAll(queue)).toHaveLength(3);
    const other = callOf('b', 'f');
    queue.push(other);
    expect(takeAll(queue)).toEqual([other]);
  });

  it('a placed call lets the next call of its function start', () => {
    const queue = new AsyncQueue(BOUNDS);
    const calls = Array.from({ length: 3 }, () => callOf('a', 'f'));
    for (const call of calls) queue.push(call);
    const [first] = takeAll(queue);
    if (first) queue.placed(first);
    expect(takeAll(queue)).toEqual([calls[2]]);
  });

  it('a call that is put back becomes the next call of its function again', () => {
    const queue = new AsyncQueue({ maxUnplacedPerFunction: 1, maxUnplacedPerTenant: 3 });
    const [first, second] = [callOf('a', 'f'), callOf('a', 'f')];
    queue.push(first);
    queue.push(second);
    expect(takeAll(queue)).toEqual([first]);
    queue.requeue(first);
    expect(takeAll(queue)).toEqual([first]);
  });

  it('the queue skips a paused function until the function is resumed', () => {
    const queue = new AsyncQueue(BOUNDS);
    const [call, other] = [callOf('a', 'f'), callOf('a', 'g')];
    queue.push(call);
    queue.push(other);
    queue.pause(call, true);
    expect(takeAll(queue)).toEqual([other]);
    queue.pause(call, false);
    expect(takeAll(queue)).toEqual([call]);
  });
});
