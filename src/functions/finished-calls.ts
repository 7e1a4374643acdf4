import type { CallOrigin, CallSink, CallStages } from '../core/finished-call.ts';
import type { Call, CallOutcome } from '../runtime/call.ts';
import type { FunctionDefinition } from './catalog.ts';

/** The end of a call. */
export interface EndedCall {
  readonly code: string;
  readonly elapsedMs: number;
  /** Null when the platform failed the call. */
  readonly result: { readonly outcome: CallOutcome; readonly instanceId: string; readonly timings: CallStages } | null;
  readonly error: string;
}

const NO_ORIGIN: CallOrigin = { mode: 'sync', caller: '', traceparent: undefined };

/** Offers a call to the history, on the path of the call. */
export function offerCall(
  sink: CallSink,
  { urn, tenant }: FunctionDefinition,
  { call, origin = NO_ORIGIN }: { readonly call: Pick<Call, 'header' | 'body'>; readonly origin?: CallOrigin },
  { code, elapsedMs, result, error }: EndedCall,
): void {
  if (!sink.wants(urn, code === 'ok', elapsedMs)) return;
  const { traceId, requestId } = call.header;
  sink.push({
    id: requestId,
    traceId,
    tenant,
    caller: origin.caller,
    traceparent: origin.traceparent,
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
    spans: result?.outcome.spans,
    error,
  });
}
