import { isJsonObject } from './json.ts';
import { LIMITS } from './limits.ts';

export type SpanAttributes = Readonly<Record<string, string | number | boolean>>;

/** A part of a call that the handler's code has named. Times are microseconds since the handler started. */
export interface CallSpan {
  readonly name: string;
  /** Position of the span that contains this one, which is smaller than that of this one; null: none. */
  readonly parent: number | null;
  readonly startMicros: number;
  readonly micros: number;
  readonly attributes?: SpanAttributes;
  /** Present when the part has failed. */
  readonly error?: string;
}

export interface CallSpans {
  readonly spans: readonly CallSpan[];
  /** Number of spans and attributes above a limit. */
  readonly dropped: number;
}

export const NO_SPANS: CallSpans = { spans: [], dropped: 0 };

/**
 * Reads the JSON of a SPANS frame, which is untrusted, or of a record. An invalid span is dropped and
 * counted. Text that is no such JSON has no spans.
 */
export function readCallSpans(json: string): CallSpans {
  const message = parsed(json);
  if (!isJsonObject(message) || !Array.isArray(message.spans)) return NO_SPANS;
  const { count } = LIMITS.callSpans;
  const read = message.spans.slice(0, count).map(readSpan);
  const lost = message.spans.length - read.length + (isCount(message.dropped) ? message.dropped : 0);
  if (!read.includes(null)) return { spans: read as CallSpan[], dropped: lost };
  return withoutGaps(read, lost);
}

/** Removes the gaps of invalid spans. Their children become children of the span above. */
function withoutGaps(read: readonly (CallSpan | null)[], lost: number): CallSpans {
  const places: (number | null)[] = [];
  const spans: CallSpan[] = [];
  for (const span of read) {
    places.push(span === null ? null : spans.length);
    if (span !== null) spans.push({ ...span, parent: span.parent === null ? null : (places[span.parent] ?? null) });
  }
  return { spans, dropped: lost + read.length - spans.length };
}

function readSpan(value: unknown, index: number): CallSpan | null {
  if (!isJsonObject(value)) return null;
  const { name, parent, startMicros, micros, attributes, error } = value;
  if (typeof name !== 'string' || !isCount(startMicros) || !isCount(micros)) return null;
  return {
    name: name.slice(0, LIMITS.callSpans.nameChars),
    parent: isCount(parent) && parent < index ? parent : null,
    startMicros,
    micros,
    ...(isJsonObject(attributes) && { attributes: readAttributes(attributes) }),
    ...(typeof error === 'string' && { error: error.slice(0, LIMITS.callSpans.valueChars) }),
  };
}

function readAttributes(attributes: Readonly<Record<string, unknown>>): SpanAttributes {
  const { attributes: count, keyChars, valueChars } = LIMITS.callSpans;
  const kept: [string, string | number | boolean][] = [];
  for (const [key, value] of Object.entries(attributes)) {
    if (kept.length === count) break;
    if (key.length > keyChars) continue;
    if (typeof value === 'string') kept.push([key, value.slice(0, valueChars)]);
    else if (typeof value === 'number' || typeof value === 'boolean') kept.push([key, value]);
  }
  return Object.fromEntries(kept);
}

/** The greatest number of microseconds, as in the runtime protocol. */
const MAX_MICROS = 1e15;

function isCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MAX_MICROS;
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
