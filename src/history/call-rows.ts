import type { FinishedCall } from '../core/finished-call.ts';
import { LATEST, parseUrn } from '../core/urn.ts';
import type { NewCall } from '../storage/schema.ts';
import { keptBytesOf } from './call-ring.ts';
import type { Redaction } from './redaction.ts';
import type { SecretValues } from './secret-values.ts';
import { toSpansColumn } from './span-column.ts';

export interface CallRowOptions {
  readonly nodeId: string;
  /** Most bytes of an input, and of an output. */
  readonly bodyBytes: number;
  readonly redaction: Redaction;
}

/** Facts for the record of a call that are not in the call. */
export interface CallFacts {
  /** The secrets of the call's tenant. */
  readonly secrets: SecretValues;
  /** `<namespace>/<name>` of the agent; `''` for a function, and if the agent is deleted. */
  readonly agentName: string;
}

/** Characters of an error text, and of the name of a token. */
const MAX_ERROR_CHARS = 2048;
const MAX_CALLER_CHARS = 128;
/** Bytes that a record and its index entries take beside its texts. */
const ROW_BYTES = 700;

/** Returns the record of a call. Work that the path of a call leaves to the writer: cutting and redacting. */
export function toCallRow(call: FinishedCall, options: CallRowOptions, { secrets, agentName }: CallFacts): NewCall {
  const { redaction } = options;
  const bodyBytes = keptBytesOf(call, options.bodyBytes);
  const { input, output, stages, wholeBytes, endedAtMs, elapsedMs } = call;
  const shown = (body: Buffer) => redaction.json(secrets.hide(beginningOf(body, bodyBytes), body.length > bodyBytes));
  const shownInput = shown(input);
  const shownOutput = output === null ? '' : shown(output);
  const spans = toSpansColumn(call.spans, { redaction, secrets, hasAttributes: bodyBytes > 0 });
  const isErrorCut = call.error.length > MAX_ERROR_CHARS;
  const error = redaction.text(secrets.hide(call.error.slice(0, MAX_ERROR_CHARS), isErrorCut));
  return {
    id: call.id,
    tenant: call.tenant,
    kind: call.kind,
    ...targetOf(call, agentName),
    instance_id: call.instanceId,
    node_id: options.nodeId,
    mode: call.mode,
    caller: call.caller.slice(0, MAX_CALLER_CHARS),
    trace_id: call.traceId,
    parent: parentOf(call.traceparent),
    outcome: call.code === 'ok' ? 'ok' : 'error',
    code: call.code,
    started_at_ms: Math.round(endedAtMs - elapsedMs),
    elapsed_us: micros(elapsedMs),
    queue_us: micros(stages?.queueMs),
    place_us: micros(stages?.placeMs),
    start_us: micros(stages?.startMs),
    load_us: micros(stages?.loadMs),
    run_us: micros(stages?.runMs),
    input_bytes: wholeBytes?.input ?? input.length,
    output_bytes: wholeBytes?.output ?? output?.length ?? 0,
    input_cut: input.length > bodyBytes ? 1 : 0,
    output_cut: output !== null && output.length > bodyBytes ? 1 : 0,
    bytes: ROW_BYTES + [shownInput, shownOutput, error, spans].reduce((sum, text) => sum + Buffer.byteLength(text), 0),
    error,
    input: shownInput,
    output: shownOutput,
    spans,
  };
}

function targetOf({ kind, target }: FinishedCall, agentName: string) {
  if (kind === 'agent') return { subject: target, name: agentName, version: '' };
  const urn = parseUrn(target);
  const name = urn?.name ?? target;
  return { subject: name, name, version: urn?.version === LATEST ? 'latest' : (urn?.version ?? '') };
}

/** Matches a `traceparent` whose span has the digits of a UUID of version 4. */
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-([0-9a-f]{8})([0-9a-f]{4})(4[0-9a-f]{3})-/;

/**
 * Returns the beginning of the id of the call that made a call; `''`: none. Runtimes give handlers a span id
 * that consists of the first 16 digits of the request id.
 */
function parentOf(traceparent = ''): string {
  const [, ...digits] = TRACEPARENT.exec(traceparent) ?? [];
  return digits.join('-');
}

function micros(ms = 0): number {
  return Math.max(0, Math.round(ms * 1000));
}

/** Returns at most `maxBytes` of UTF-8 as text, without half a character at its end. */
function beginningOf(bytes: Buffer, maxBytes: number): string {
  if (bytes.length <= maxBytes) return bytes.toString();
  let end = maxBytes;
  while (end > 0 && ((bytes[end] as number) & 0xc0) === 0x80) end -= 1;
  return bytes.toString('utf8', 0, end);
}
