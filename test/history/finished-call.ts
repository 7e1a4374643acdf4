import type { FinishedCall } from '../../src/core/finished-call.ts';

let calls = 0;

/** Returns an agent's successful call, with other fields if given. */
export function finishedCall(fields: Partial<FinishedCall> = {}): FinishedCall {
  calls += 1;
  return {
    id: `00000000-0000-4000-8000-${String(calls).padStart(12, '0')}`,
    traceId: `trace-${calls}`,
    tenant: 'default',
    caller: '',
    traceparent: undefined,
    kind: 'agent',
    target: 'agent-1',
    instanceId: 'agent-1',
    mode: 'sync',
    endedAtMs: 1_000_000 + calls,
    elapsedMs: 2,
    stages: { queueMs: 1, placeMs: 0, startMs: 0, loadMs: 0, runMs: 1 },
    code: 'ok',
    input: Buffer.from('{"name":"you"}'),
    output: Buffer.from('"hello"'),
    error: '',
    ...fields,
  };
}
