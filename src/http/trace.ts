import type { IncomingHttpHeaders } from 'node:http';
import { LIMITS } from '../core/limits.ts';
import { newRequestId } from '../lib/request-id.ts';
import { parseTraceparent } from '../telemetry/traceparent.ts';
import { headerText } from './answer.ts';

const NO_HEADER = /[^\t\x20-\x7e\x80-\xff]/;

/** `X-Trace-Id`, else `X-Request-Id`, else the trace of a valid `traceparent`, else a new UUID; cut to `LIMITS.traceIdChars`. */
export function traceIdOf(headers: IncomingHttpHeaders): string {
  const sent = headers['x-trace-id'] || headers['x-request-id'];
  if (typeof sent !== 'string' || sent === '') {
    const { traceparent } = headers;
    if (traceparent === undefined) return newRequestId();
    return parseTraceparent(traceparent as string)?.traceId ?? newRequestId();
  }
  const cut = sent.length > LIMITS.traceIdChars ? sent.slice(0, LIMITS.traceIdChars) : sent;
  // It is sent back as a header, and written into the log.
  return NO_HEADER.test(cut) ? headerText(cut) : cut;
}
