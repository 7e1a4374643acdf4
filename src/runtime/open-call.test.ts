import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import type { CallOutcome } from './call.ts';
import { OpenCall } from './open-call.ts';

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
  call.settle(OUTCOME);
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
  call.settle(OUTCOME);
  call.settle(OUTCOME);
  call.fail(new Error('late'));
  expect(request.deref()).toMatchObject({ told: [OUTCOME] });
});
