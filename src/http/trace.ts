import type { IncomingHttpHeaders } from 'node:http';
import { LIMITS } from '../core/limits.ts';
import { newRequestId } from '../lib/request-id.ts';
import { parseTraceparent } from '../telemetry/traceparent.ts';

/** Printable ASCII. Header lines and logs may interpret any other byte differently. */
const PRINTABLE = /^[ -~]+$/;

/**
 * Returns `X-Trace-Id`, else `X-Request-Id`, else the trace of a valid `traceparent`, else a new UUID.
 * Truncates the id to `LIMITS.traceIdChars`. Ignores an id that is not printable ASCII.
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
