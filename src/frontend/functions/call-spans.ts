import type { FunctionResult } from '../../functions/function-service.ts';
import type { Span, SpanPart } from '../../telemetry/tracer.ts';

/** A wait that is shorter is left out: a span would cost more than it says. */
const MIN_WAIT_MS = 1;

/** Ends the span of a call that has just ended, with what it went through below it. */
export function endCallSpan(span: Span, { outcome, instanceId, timings }: FunctionResult): void {
  span.set('rookery.instance_id', instanceId);
  for (const part of partsOf(timings, Date.now())) span.part(part);
  span.end(outcome.ok ? undefined : String(outcome.code));
}

/** The stages of a call in their order, the last of which ends at `endMs`; an instance's start is one, with its own stages. */
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
