import { isUtf8 } from 'node:buffer';
import { SERVICE_CODES } from './codes.ts';
import { invalidRequest, type ServiceError } from './error.ts';
import { isJsonObject } from './json.ts';
import type { Range, Schema } from './kind.ts';
import { LIMITS } from './limits.ts';
import { Header, type Parameters, readParameters, type Sent } from './parameter.ts';

/**
 * The instance that the headers of a function call request. Every failure is `invalid_request` with the
 * numeric code for the answer.
 */
export interface FunctionCallHeaders {
  /** Undefined: the function's own value. */
  readonly cpuMillis: number | undefined;
  readonly memoryMb: number | undefined;
  /** Canonical JSON with sorted names; `''` when the call requests none. */
  readonly customResources: string;
  /** Preferred pools, in order. Ignored where no pools exist. */
  readonly poolLabels: readonly string[];
  /** `''`: any label. */
  readonly label: string;
  readonly session: SessionHeader | undefined;
  /**
   * The unparsed header. `readSessionContext` reads the header once the function is known to use sessions.
   */
  readonly sessionContext: string | undefined;
}

export interface SessionHeader {
  /** 1 to 63 characters. */
  readonly id: string;
  /** Slots of an instance that are kept for the session; −1: the whole instance. */
  readonly concurrency: number;
  /** Milliseconds for which the slots are kept after the session's last call. */
  readonly ttlMs: number;
}

const BAD_REQUEST = SERVICE_CODES.badCall.code;
const BAD_SESSION = SERVICE_CODES.badSession.code;
const MAX_SESSION_TTL_SECONDS = 86_400 * 30;
const MAX_LABELS = 100;
const EVENT_STREAM = /^\s*text\/event-stream\s*(;|$)/i;
const QUALITY = /;\s*q\s*=\s*"?([0-9.]+)/i;

/** Also read by the create of an agent. */
export const POOL_LABELS: Header<readonly string[]> = trimmed<readonly string[]>(
  'X-Pool-Label',
  `Pools, preferred in order: at most ${MAX_LABELS}, with commas between them or as a JSON list. A label is "key", "key=value", or the value of some label.`,
  [],
  readPoolLabels,
);

/** Headers that choose the instance of a call. */
export const PLACEMENT_HEADERS = {
  cpuMillis: count('X-Instance-Cpu', LIMITS.cpuMillis, '1/1000 cores; absent: those of the function.'),
  memoryMb: count('X-Instance-Memory', LIMITS.memoryMb, 'MB; absent: those of the function.'),
  customResources: trimmed('X-Instance-Custom-Resource', 'A JSON object of numbers.', '', readCustomResources),
  poolLabels: POOL_LABELS,
  label: trimmed('X-Instance-Label', 'Only instances that are reserved for this label.', '', text => text),
  session: trimmed<SessionHeader | undefined>(
    'X-Instance-Session',
    '`{"sessionID", "sessionTTL", "concurrency"}` or a bare id.',
    undefined,
    readSession,
  ),
  sessionContext: trimmed<string | undefined>('X-Session-Context', '`{"sessionCtx": "…"}`', undefined, text => text),
} satisfies Parameters<FunctionCallHeaders>;

/** Headers that choose how a call is answered. */
export const ANSWER_HEADERS = {
  wantsStream: new Header(
    'Accept',
    { description: '`text/event-stream`: the answer is a stream of events.' },
    false,
    acceptsEventStream,
  ),
  isAsync: new Header(
    'X-Invoke-Type',
    { description: '`async`: answer 202 at once; `sync`: as without it. In any case.' },
    false,
    readInvokeType,
  ),
  /** The unchecked URL. The configuration decides which URLs are allowed. */
  webhookUrl: new Header(
    'X-Webhook-Url',
    { description: 'Where the end of an asynchronous call is posted.' },
    '',
    text => text,
  ),
};

/**
 * The headers of a call without special requests, as most calls are. Callers compare with this one object
 * instead of comparing fields.
 */
export const PLAIN_CALL: FunctionCallHeaders = Object.freeze(readParameters(PLACEMENT_HEADERS, {}));

const PLACEMENT_ROWS = Object.values(PLACEMENT_HEADERS);

export function readFunctionCallHeaders(headers: Sent): FunctionCallHeaders {
  return isPlainCall(headers) ? PLAIN_CALL : readParameters<FunctionCallHeaders>(PLACEMENT_HEADERS, headers);
}

/** Returns true if a call requests no special instance. Runs on every call. */
export function isPlainCall(headers: Sent): boolean {
  for (const row of PLACEMENT_ROWS) if (row.isSent(headers)) return false;
  return true;
}

/** Returns the session context of a call, or `''`. Fails with `invalid_request` (4037). */
export function readSessionContext(text: string | undefined): string {
  if (text === undefined) return '';
  const value = parseJson(text, 'X-Session-Context', BAD_SESSION);
  const context = isJsonObject(value) ? value.sessionCtx : undefined;
  if (typeof context !== 'string' || context.length > 63) {
    throw bad(
      'X-Session-Context must be a JSON object whose sessionCtx is a text of at most 63 characters',
      BAD_SESSION,
    );
  }
  return context;
}

/** A header that ignores surrounding spaces. An empty header counts as absent. */
function trimmed<T>(
  name: string,
  doc: string | Schema,
  absent: T,
  parse: (text: string, name: string) => T,
): Header<T> {
  const schema = typeof doc === 'string' ? { description: doc } : doc;
  return new Header(name, schema, absent, sent => {
    const text = sent.trim();
    return text === '' ? absent : parse(asUtf8(text), name);
  });
}

/** Returns true if the caller accepts an event stream with a quality above 0 and prefers no other type. */
function acceptsEventStream(accept: string): boolean {
  if (!/text\/event-stream/i.test(accept)) return false;
  let asked = 0;
  let other = 0;
  for (const range of accept.split(',')) {
    const quality = Number(QUALITY.exec(range)?.[1] ?? 1);
    if (EVENT_STREAM.test(range)) asked = Math.max(asked, quality);
    // A wildcard range does not express a preference for another type.
    else if (!range.includes('*')) other = Math.max(other, quality);
  }
  return asked > 0 && asked >= other;
}

function readInvokeType(sent: string): boolean {
  const type = sent.trim().toLowerCase();
  if (type === 'async') return true;
  if (type === 'sync' || type === '') return false;
  throw bad(`X-Invoke-Type must be sync or async, got "${sent}"`, BAD_REQUEST);
}

/** Decodes a header as UTF-8, as callers send it. Node reads each byte as one character. */
function asUtf8(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern compares the whole range.
  if (/^[\x00-\x7f]*$/.test(text)) return text;
  const bytes = Buffer.from(text, 'latin1');
  return isUtf8(bytes) ? bytes.toString() : text;
}

function count(name: string, { min, max }: Range, description: string): Header<number | undefined> {
  const schema = { type: 'integer', minimum: min, maximum: max, description };
  return trimmed<number | undefined>(name, schema, undefined, text => {
    const value = /^[0-9]{1,10}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    throw bad(`${name} must be an integer from ${min} to ${max}, got "${text}"`, BAD_REQUEST);
  });
}

function readCustomResources(text: string, header: string): string {
  const value = parseJson(text, header, BAD_REQUEST);
  if (
    !isJsonObject(value) ||
    !Object.values(value).every(amount => Number.isFinite(amount) && (amount as number) >= 0)
  ) {
    throw bad(`${header} must be a JSON object of numbers that are not negative`, BAD_REQUEST);
  }
  const names = Object.keys(value).sort();
  return names.length === 0 ? '' : JSON.stringify(Object.fromEntries(names.map(name => [name, value[name]])));
}

function readPoolLabels(text: string, header: string): string[] {
  const value: unknown = text.startsWith('[')
    ? parseJson(text, header, BAD_REQUEST)
    : text.split(',').map(label => label.trim());
  if (!Array.isArray(value) || value.length > MAX_LABELS || !value.every(label => typeof label === 'string')) {
    throw bad(`${header} must be a list of at most ${MAX_LABELS} labels`, BAD_REQUEST);
  }
  return value as string[];
}

function readSession(text: string, header: string): SessionHeader {
  if (!text.startsWith('{')) return { id: sessionId(text), concurrency: 1, ttlMs: 0 };
  const value = parseJson(text, header, BAD_SESSION);
  if (!isJsonObject(value)) throw bad('X-Instance-Session must be a JSON object or a bare id', BAD_SESSION);
  const concurrency = value.concurrency ?? 1;
  if (!Number.isInteger(concurrency) || (concurrency !== -1 && !((concurrency as number) >= 1))) {
    throw bad('X-Instance-Session: concurrency must be a positive integer, or -1 for the whole instance', BAD_SESSION);
  }
  const ttl = value.sessionTTL ?? 0;
  if (!Number.isInteger(ttl) || (ttl as number) < 0 || (ttl as number) > MAX_SESSION_TTL_SECONDS) {
    throw bad(`X-Instance-Session: sessionTTL must be whole seconds from 0 to ${MAX_SESSION_TTL_SECONDS}`, BAD_SESSION);
  }
  return { id: sessionId(value.sessionID), concurrency: concurrency as number, ttlMs: (ttl as number) * 1000 };
}

/**
 * Returns the session whose id `header` has, for functions whose profile names that header; undefined without
 * it. Fails as `X-Instance-Session` does.
 */
export function readSessionHeader(header: string, headers: Sent): SessionHeader | undefined {
  const id = String(headers[header.toLowerCase()] ?? '').trim();
  return id === '' ? undefined : { id: sessionId(id, header), concurrency: 1, ttlMs: 0 };
}

function sessionId(value: unknown, header = 'X-Instance-Session: sessionID'): string {
  if (typeof value !== 'string' || value.length < 1 || value.length > 63) {
    throw bad(`${header} must be a text of 1 to 63 characters`, BAD_SESSION);
  }
  return value;
}

function parseJson(text: string, header: string, number: number): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw bad(`${header} must be JSON: ${(error as Error).message}`, number);
  }
}

function bad(message: string, number: number): ServiceError {
  return invalidRequest(message, { number });
}
