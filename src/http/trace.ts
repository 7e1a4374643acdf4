import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { LIMITS } from '../core/limits.ts';

/** `X-Trace-Id`, else `X-Request-Id`, else a new UUID; cut to `LIMITS.traceIdChars`. */
export function traceIdOf(headers: IncomingHttpHeaders): string {
  const sent = headers['x-trace-id'] || headers['x-request-id'];
  if (typeof sent !== 'string' || sent === '') return randomUUID();
  return sent.length > LIMITS.traceIdChars ? sent.slice(0, LIMITS.traceIdChars) : sent;
}
