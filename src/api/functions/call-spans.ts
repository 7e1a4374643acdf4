import type { FunctionResult } from '../../functions/function-invoker.ts';
import type { Span, SpanPart } from '../../telemetry/tracer.ts';

/** Shortest wait that becomes a span. A shorter span would cost more than it is worth. */
const MIN_WAIT_MS = 1;

/** Ends the span of a finished call, and adds its stages as parts. */
export function endCallSpan(span: Span, { outcome, instanceId, timings }: FunctionResult): void {
  span.set('rookery.instance_id', instanceId);
  for (const part of partsOf(timings, Date.now())) span.part(part);
  span.end(outcome.ok ? undefined : String(outcome.code));
}

/**
 * Returns the stages of a call in their order. The last stage ends at `endMs`.
 * The start of an instance is a stage with stages of its own.
 */
export function partsOf({ queueMs, placeMs, startMs, loadMs, runMs }: FunctionResult['timings'], endMs: number) {
  const parts: SpanPart[] = [];
  let atMs = endMs - runMs - loadMs - startMs - placeMs - queueMs;
  const next = (name: string, ms: number): SpanPart => {
    const part = { name, startMs: atMs, endMs: atMs + ms };
    atMs = part.endMs;
    return part;
  };
  const queue = next('queue', queueMs);
  if (queueMs >= MIN_WAIT_MS) parts.push(queue);
  const place = next('place', placeMs);
  if (placeMs >= MIN_WAIT_MS) parts.push(place);
  if (startMs > 0) {
    const start = next('start', startMs);
    const load = next('load', loadMs);
    parts.push({ name: 'cold start', startMs: start.startMs, endMs: load.endMs, parts: [start, load] });
  }
  parts.push(next('run', runMs));
  return parts;
}
