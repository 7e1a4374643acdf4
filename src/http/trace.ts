import type { IncomingHttpHeaders } from 'node:http';
import { LIMITS } from '../core/limits.ts';
import { newRequestId } from '../lib/request-id.ts';
import { parseTraceparent } from '../telemetry/traceparent.ts';

/** Of header lines and logs alike: another byte would be read as one thing here and as another one there. */
const PRINTABLE = /^[ -~]+$/;

/**
 * `X-Trace-Id`, else `X-Request-Id`, else the trace of a valid `traceparent`, else a new UUID; cut to `LIMITS.traceIdChars`. One that is not
 * printable ASCII is as good as absent.
 */
export function traceIdOf(headers: IncomingHttpHeaders): string {
  const named = sentId(headers['x-trace-id']) ?? sentId(headers['x-request-id']);
  if (named !== undefined) return named;
  const { traceparent } = headers;
  if (traceparent === undefined) return newRequestId();
  return parseTraceparent(traceparent as string)?.traceId ?? newRequestId();
}

function sentId(sent: string | string[] | undefined): string | undefined {
  if (typeof sent !== 'string') return undefined;
  const cut = sent.length > LIMITS.traceIdChars ? sent.slice(0, LIMITS.traceIdChars) : sent;
  return PRINTABLE.test(cut) ? cut : undefined;
}
