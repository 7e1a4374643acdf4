import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { LIMITS } from '../core/limits.ts';

/** `X-Trace-Id`, else `X-Request-Id`, else a new UUID; cut to `LIMITS.traceIdChars`. */
export function traceIdOf(headers: IncomingHttpHeaders): string {
  const sent = headers['x-trace-id'] || headers['x-request-id'];
  if (typeof sent !== 'string' || sent === '') return randomUUID();
  return sent.length > LIMITS.traceIdChars ? sent.slice(0, LIMITS.traceIdChars) : sent;
}

/** W3C trace context: version, trace id, parent id, flags; later versions may carry more behind another dash. */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const NO_TRACE = '0'.repeat(32);
const NO_SPAN = '0'.repeat(16);

/** The caller's trace with a span of ours; a new sampled trace when the caller sent none, or none that is valid. */
export function continueTraceparent(sent: string | undefined): string {
  const match = sent === undefined ? null : TRACEPARENT.exec(sent);
  if (match) {
    const [, version, traceId, spanId, flags, rest] = match;
    const valid =
      version !== 'ff' && traceId !== NO_TRACE && spanId !== NO_SPAN && (version !== '00' || rest === undefined);
    if (valid) return `00-${traceId}-${newSpanId()}-${flags}`;
  }
  return `00-${randomUUID().replaceAll('-', '')}-${newSpanId()}-01`;
}

/** The random digits of a UUID: its 8 first and 8 of its 12 last. Node keeps a pool of them, so this costs no system call. */
function newSpanId(): string {
  const uuid = randomUUID();
  return uuid.slice(0, 8) + uuid.slice(28);
}
