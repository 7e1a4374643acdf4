import { randomBytes } from 'node:crypto';

/** The fields of a W3C `traceparent`, version 00. */
export interface TraceParent {
  /** Trace id, 32 hex digits. */
  readonly traceId: string;
  /** Span id, 16 hex digits. */
  readonly spanId: string;
  readonly flags: number;
}

/** Matches a `traceparent`. Later versions may have more fields after another dash. */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const NO_TRACE = '0'.repeat(32);
const NO_SPAN = '0'.repeat(16);
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const SAMPLED = 1;

/**
 * Parses a header; null when it is absent or invalid, in which case the specification requires a new trace.
 */
export function parseTraceparent(header: string | undefined): TraceParent | null {
  const match = header === undefined ? null : TRACEPARENT.exec(header);
  if (match === null) return null;
  const [, version, traceId = '', spanId = '', flags = '', rest] = match;
  if (version === 'ff' || (version === '00' && rest !== undefined)) return null;
  if (traceId === NO_TRACE || spanId === NO_SPAN) return null;
  return { traceId, spanId, flags: Number.parseInt(flags, 16) };
}

export function formatTraceparent({ traceId, spanId, flags }: TraceParent): string {
  return `00-${traceId}-${spanId}-${flags.toString(16).padStart(2, '0')}`;
}

/** Continues the client's trace with a new span id, or begins a new sampled trace when there is none. */
export function continueTrace(header: string | undefined, requestTraceId: string): TraceParent {
  const parent = parseTraceparent(header);
  if (parent === null) {
    return { traceId: newTraceId(requestTraceId), spanId: randomHex(8), flags: SAMPLED };
  }
  return { traceId: parent.traceId, spanId: randomHex(8), flags: parent.flags };
}

/**
 * Returns the id of a trace that begins here.
 * Uses the request's own id (`X-Trace-Id`) without dashes if it is a UUID, so that each id can be derived
 * from the other. Otherwise the id is random.
 */
export function newTraceId(requestTraceId: string): string {
  if (!UUID.test(requestTraceId)) return randomHex(16);
  // Cuts at the known positions of the dashes: searching for them costs more than the rest.
  const id =
    requestTraceId.slice(0, 8) +
    requestTraceId.slice(9, 13) +
    requestTraceId.slice(14, 18) +
    requestTraceId.slice(19, 23) +
    requestTraceId.slice(24);
  return id === NO_TRACE ? randomHex(16) : id;
}

/** Random digits in stock: a call to the system for each id costs more than the id. */
const pool = { hex: '', at: 0 };
const POOL_BYTES = 1024;

export function randomHex(byteCount: number): string {
  const digits = 2 * byteCount;
  if (pool.at + digits > pool.hex.length) {
    pool.hex = randomBytes(POOL_BYTES).toString('hex');
    pool.at = 0;
  }
  pool.at += digits;
  const hex = pool.hex.slice(pool.at - digits, pool.at);
  return hex === NO_TRACE || hex === NO_SPAN ? randomHex(byteCount) : hex;
}
