import { expect, test } from 'vitest';
import type { OpenCall } from './open-call.ts';
import { OpenCalls } from './open-calls.ts';

const NONE_TAKEN = () => false;

function add(calls: OpenCalls, isTaken: (id: number) => boolean = NONE_TAKEN): OpenCall {
  const call = { id: calls.nextId(isTaken) } as OpenCall;
  calls.add(call);
  return call;
}

test('OpenCalls finds a call by its id until removal, and by no other id', () => {
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

test('OpenCalls keeps the id of a long call while 1000 later calls end', () => {
  const calls = new OpenCalls();
  const first = add(calls);
  for (let count = 0; count < 1000; count += 1) calls.remove(add(calls));
  expect(calls.get(first.id)).toBe(first);
  expect(calls.size).toBe(1);
});

test('OpenCalls skips an id that another call still uses', () => {
  const calls = new OpenCalls();
  const taken = add(calls).id + 1;
  expect(add(calls, id => id === taken).id).toBe(taken + 1);
});

test('removeAll returns all calls in the order in which they were added', () => {
  const calls = new OpenCalls();
  const first = add(calls);
  for (let count = 0; count < 50; count += 1) calls.remove(add(calls));
  const later = Array.from({ length: 40 }, () => add(calls));
  expect(calls.removeAll()).toEqual([first, ...later]);
  expect(calls.size).toBe(0);
  expect(calls.removeAll()).toEqual([]);
  expect(calls.get(first.id)).toBeUndefined();
});
