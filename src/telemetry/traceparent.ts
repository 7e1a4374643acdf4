import { randomBytes } from 'node:crypto';

/** The fields of a W3C `traceparent`, version 00. */
export interface TraceParent {
  /** 32 hex digits. */
  readonly traceId: string;
  /** 16 hex digits. */
  readonly spanId: string;
  readonly flags: number;
}

/** Later versions may carry more behind another dash. */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const NO_TRACE = '0'.repeat(32);
const NO_SPAN = '0'.repeat(16);
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const SAMPLED = 1;

/** Null when it is absent or not valid: the specification says to start a new trace then. */
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

/** The caller's trace with a span id of ours, or a new sampled trace when there is none. */
export function continueTrace(header: string | undefined, requestTraceId: string): TraceParent {
  const parent = parseTraceparent(header);
  if (parent === null) {
    return { traceId: newTraceId(requestTraceId), spanId: randomHex(8), flags: SAMPLED };
  }
  return { traceId: parent.traceId, spanId: randomHex(8), flags: parent.flags };
}

/**
 * The id of a trace that begins with us: the request's own (`X-Trace-Id`) without its dashes where it is a UUID, so that who has the one finds
 * the other, else a random one.
 */
export function newTraceId(requestTraceId: string): string {
  if (!UUID.test(requestTraceId)) return randomHex(16);
  // Cut where the dashes are known to be: looking for them costs more than all the rest.
  const id =
    requestTraceId.slice(0, 8) +
    requestTraceId.slice(9, 13) +
    requestTraceId.slice(14, 18) +
    requestTraceId.slice(19, 23) +
    requestTraceId.slice(24);
  return id === NO_TRACE ? randomHex(16) : id;
}

/** Asking the system for random bytes costs more than the id: they come by the page. */
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
