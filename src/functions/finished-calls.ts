import type { CallOrigin, CallSink } from '../core/finished-call.ts';
import type { FunctionDefinition } from './catalog.ts';
import type { FunctionInvocation, FunctionResult } from './function-invoker.ts';

/** The end of a call. */
export interface EndedCall {
  readonly code: string;
  readonly elapsedMs: number;
  /** Null when the platform failed the call. */
  readonly result: FunctionResult | null;
  readonly error: string;
}

const NO_ORIGIN: CallOrigin = { mode: 'sync', caller: '', sentTraceparent: undefined };

/** Offers a call to the history, on the path of the call. */
export function offerCall(
  sink: CallSink,
  { urn, tenant }: FunctionDefinition,
  { call, origin = NO_ORIGIN }: FunctionInvocation,
  { code, elapsedMs, result, error }: EndedCall,
): void {
  if (!sink.wants(urn, code === 'ok', elapsedMs)) return;
  const { traceId, traceparent, requestId } = call.header;
  sink.push({
    id: requestId,
    traceId,
    traceparent,
    sentTraceparent: origin.sentTraceparent,
    tenant,
    caller: origin.caller,
    kind: 'function',
    target: urn,
    instanceId: result?.instanceId ?? '',
    mode: origin.mode,
    endedAtMs: Date.now(),
    elapsedMs,
    stages: result?.timings ?? null,
    code,
    input: call.body,
    output: result?.outcome.ok ? result.outcome.data : null,
    error,
  });
}
