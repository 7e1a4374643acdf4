import { describe, expect, it } from 'vitest';
import { AsyncLanes, type QueuedCall } from './async-lanes.ts';

const BOUNDS = { maxUnplacedPerFunction: 2, maxUnplacedPerTenant: 3 };
let made = 0;
const callOf = (tenant: string, urn: string): QueuedCall => {
  made += 1;
  return { id: `${tenant}${urn}${made}`, tenant, urn, createdAtMs: made };
};

/** Takes everything that may go now. */
function takeAll(lanes: AsyncLanes): QueuedCall[] {
  const taken: QueuedCall[] = [];
  for (let call = lanes.take(); call; call = lanes.take()) taken.push(call);
  return taken;
}

describe('the order of asynchronous calls', () => {
  it('tenants take turns, and functions of a tenant; within a function first come is first served', () => {
    const lanes = new AsyncLanes({ maxUnplacedPerFunction: 100, maxUnplacedPerTenant: 100 });
    const calls = ['f', 'f', 'g', 'f'].map(urn => callOf('a', urn)).concat(['h', 'h'].map(urn => callOf('b', urn)));
    for (const call of calls) lanes.push(call);
    const [f1, f2, g1, f3, h1, h2] = calls;
    expect(takeAll(lanes)).toEqual([f1, h1, g1, h2, f2, f3]);
  });

  it('a function whose calls find no place holds back itself and nobody else', () => {
    const lanes = new AsyncLanes(BOUNDS);
    for (const call of Array.from({ length: 5 }, () => callOf('a', 'stuck'))) lanes.push(call);
    expect(takeAll(lanes)).toHaveLength(2);
    const other = callOf('a', 'free');
    lanes.push(other);
    expect(takeAll(lanes)).toEqual([other]);
  });

  it('a tenant whose functions are all stuck leaves room for others', () => {
    const lanes = new AsyncLanes(BOUNDS);
    for (const urn of ['f', 'g', 'h', 'i']) for (let n = 0; n < 3; n++) lanes.push(callOf('a', urn));
    expect(takeAll(lanes)).toHaveLength(3);
    const other = callOf('b', 'f');
    lanes.push(other);
    expect(takeAll(lanes)).toEqual([other]);
  });

  it('a placed call makes room for the next', () => {
    const lanes = new AsyncLanes(BOUNDS);
    const calls = Array.from({ length: 3 }, () => callOf('a', 'f'));
    for (const call of calls) lanes.push(call);
    const [first] = takeAll(lanes);
    if (first) lanes.placed(first);
    expect(takeAll(lanes)).toEqual([calls[2]]);
  });

  it('a call that found no place is the next of its function again', () => {
    const lanes = new AsyncLanes({ maxUnplacedPerFunction: 1, maxUnplacedPerTenant: 3 });
    const [first, second] = [callOf('a', 'f'), callOf('a', 'f')];
    lanes.push(first);
    lanes.push(second);
    expect(takeAll(lanes)).toEqual([first]);
    lanes.putBack(first);
    expect(takeAll(lanes)).toEqual([first]);
  });

  it('a function that rests is passed over until it goes on', () => {
    const lanes = new AsyncLanes(BOUNDS);
    const [call, other] = [callOf('a', 'f'), callOf('a', 'g')];
    lanes.push(call);
    lanes.push(other);
    lanes.pause(call, true);
    expect(takeAll(lanes)).toEqual([other]);
    lanes.pause(call, false);
    expect(takeAll(lanes)).toEqual([call]);
  });
});
