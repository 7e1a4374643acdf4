import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import type { CallOutcome } from './call.ts';
import { OpenCall, OpenCalls } from './open-calls.ts';

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

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const OWNER = { cancel() {}, abandon() {} };
const OUTCOME: CallOutcome = { ok: true, data: Buffer.from('1'), runMicros: 1 };

/** Creates a call, and a weak reference to the request to which all its arguments refer. */
function open(): { call: OpenCall; request: WeakRef<object> } {
  const request = { told: [] as unknown[] };
  const listeners = new Set<() => void>();
  const signal = {
    aborted: false,
    reason: undefined,
    request,
    addEventListener: (_type: 'abort', listener: () => void) => void listeners.add(listener),
    removeEventListener: (_type: 'abort', listener: () => void) => void listeners.delete(listener),
  };
  const asked = {
    header: { traceId: '', traceparent: '', requestId: '', headers: {}, stream: true, credit: 1 },
    body: Buffer.alloc(0),
    timeoutMs: 60_000,
    signal,
    onChunk: (event: Buffer) => void request.told.push(event),
    onLateEnd: () => void request.told.push('late'),
  };
  const told = (what: unknown) => void request.told.push(what);
  return { call: new OpenCall(1, asked, OWNER, told, told), request: new WeakRef(request) };
}

test('a settled call keeps no reference to its request', async () => {
  const { call, request } = open();
  call.complete(OUTCOME);
  // A dereferenced WeakRef keeps its object alive until the end of the turn.
  await turn();
  collectGarbage();
  expect(request.deref()).toBeUndefined();
  expect(call.id).toBe(1);
});

test('a failed call still reports its late end', () => {
  const { call, request } = open();
  call.fail(new Error('timed out'));
  call.onLateEnd?.();
  expect(request.deref()).toMatchObject({ told: [new Error('timed out'), 'late'] });
});

test('a call reports only its first outcome when several arrive', () => {
  const { call, request } = open();
  call.complete(OUTCOME);
  call.complete(OUTCOME);
  call.fail(new Error('late'));
  expect(request.deref()).toMatchObject({ told: [OUTCOME] });
});
