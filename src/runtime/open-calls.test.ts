import { expect, test } from 'vitest';
import type { OpenCall } from './open-call.ts';
import { OpenCalls } from './open-calls.ts';

const NONE_TAKEN = () => false;

function add(calls: OpenCalls, isTaken: (id: number) => boolean = NONE_TAKEN): OpenCall {
  const call = { id: calls.nextId(isTaken) } as OpenCall;
  calls.add(call);
  return call;
}

test('a call is found by its id until it is removed, and by no other id', () => {
  const calls = new OpenCalls();
  const added = Array.from({ length: 100 }, () => add(calls));
  expect(new Set(added.map(({ id }) => id)).size).toBe(100);
  for (const call of added) expect(calls.get(call.id)).toBe(call);
  for (const call of added.slice(10)) calls.remove(call);
  expect(calls.size).toBe(10);
  for (const [at, call] of added.entries()) expect(calls.get(call.id)).toBe(at < 10 ? call : undefined);
  expect(calls.get(0)).toBeUndefined();
  expect(calls.get((added[0] as OpenCall).id + 2 ** 31)).toBeUndefined();
});

test('a call that lasts keeps its id, however many come and go behind it', () => {
  const calls = new OpenCalls();
  const first = add(calls);
  for (let count = 0; count < 1000; count += 1) calls.remove(add(calls));
  expect(calls.get(first.id)).toBe(first);
  expect(calls.size).toBe(1);
});

test('an id that another call still has is passed over', () => {
  const calls = new OpenCalls();
  const taken = add(calls).id + 1;
  expect(add(calls, id => id === taken).id).toBe(taken + 1);
});

test('all are removed in the order in which they were added, also those that lasted', () => {
  const calls = new OpenCalls();
  const first = add(calls);
  for (let count = 0; count < 50; count += 1) calls.remove(add(calls));
  const later = Array.from({ length: 40 }, () => add(calls));
  expect(calls.removeAll()).toEqual([first, ...later]);
  expect(calls.size).toBe(0);
  expect(calls.removeAll()).toEqual([]);
  expect(calls.get(first.id)).toBeUndefined();
});
