import { isUtf8 } from 'node:buffer';
import { SERVICE_CODES } from './codes.ts';
import { invalidRequest, type ServiceError } from './error.ts';
import { isJsonObject } from './json.ts';
import { LIMITS } from './limits.ts';

/**
 * What the headers of a function invocation ask for (specification, operation 12; decisions §6). Pure; every failure is
 * `invalid_request` with the code that the answer carries.
 */
export interface FunctionCallHeaders {
  /** Undefined: the function's own. */
  readonly cpuMillis: number | undefined;
  readonly memoryMb: number | undefined;
  /** Canonical JSON with sorted names, `''` when none were asked for. */
  readonly customResources: string;
  /** Preferred pools, in order. They mean something where there are pools. */
  readonly poolLabels: readonly string[];
  /** `''`: any. */
  readonly label: string;
  readonly session: SessionHeader | undefined;
  /** The header as it came; read with `readSessionContext` once the function is known to use it. */
  readonly sessionContext: string | undefined;
}

export interface SessionHeader {
  /** 1 to 63 characters. */
  readonly id: string;
  /** Slots of an instance that are kept for it; −1 = the whole instance. */
  readonly concurrency: number;
  /** How long they are kept after its last call, milliseconds. */
  readonly ttlMs: number;
}

type HeaderSource = Readonly<Record<string, string | string[] | undefined>>;

const BAD_REQUEST = SERVICE_CODES.badCall.code;
const BAD_SESSION = SERVICE_CODES.badSession.code;
const MAX_SESSION_TTL_SECONDS = 86_400 * 30;
const MAX_LABELS = 100;

/** What most calls ask for: nothing. One object, so that whoever reads it can tell at once. */
export const PLAIN_CALL: FunctionCallHeaders = Object.freeze({
  cpuMillis: undefined,
  memoryMb: undefined,
  customResources: '',
  poolLabels: [],
  label: '',
  session: undefined,
  sessionContext: undefined,
});

export function readFunctionCallHeaders(headers: HeaderSource): FunctionCallHeaders {
  if (isPlainCall(headers)) return PLAIN_CALL;
  return {
    cpuMillis: readCount(headers, 'X-Instance-Cpu', LIMITS.cpuMillis),
    memoryMb: readCount(headers, 'X-Instance-Memory', LIMITS.memoryMb),
    customResources: readCustomResources(textOf(headers, 'X-Instance-Custom-Resource')),
    poolLabels: readPoolLabels(textOf(headers, 'X-Pool-Label')),
    label: textOf(headers, 'X-Instance-Label') ?? '',
    session: readSession(textOf(headers, 'X-Instance-Session')),
    sessionContext: textOf(headers, 'X-Session-Context'),
  };
}

/** Whether a call asks for nothing special. On the path of every call, so it looks at the names as Node has them and makes nothing. */
export function isPlainCall(headers: HeaderSource): boolean {
  return (
    headers['x-instance-cpu'] === undefined &&
    headers['x-instance-memory'] === undefined &&
    headers['x-instance-custom-resource'] === undefined &&
    headers['x-pool-label'] === undefined &&
    headers['x-instance-label'] === undefined &&
    headers['x-instance-session'] === undefined &&
    headers['x-session-context'] === undefined
  );
}

/** The session context of a call; `''` when it has none. Fails with `invalid_request` (4037). */
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

function textOf(headers: HeaderSource, name: string): string | undefined {
  const value = headers[name.toLowerCase()];
  const text = (Array.isArray(value) ? value.join(',') : value)?.trim();
  return text === '' || text === undefined ? undefined : asUtf8(text);
}

/** Node reads each byte of a header as one character; what callers send is UTF-8, as in a URL. */
function asUtf8(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the range is what has to be told apart.
  if (/^[\x00-\x7f]*$/.test(text)) return text;
  const bytes = Buffer.from(text, 'latin1');
  return isUtf8(bytes) ? bytes.toString() : text;
}

function readCount(headers: HeaderSource, name: string, range: { min: number; max: number }): number | undefined {
  const text = textOf(headers, name);
  if (text === undefined) return undefined;
  const value = /^[0-9]{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= range.min && value <= range.max)) {
    throw bad(`${name} must be an integer from ${range.min} to ${range.max}, got "${text}"`, BAD_REQUEST);
  }
  return value;
}

function readCustomResources(text: string | undefined): string {
  if (text === undefined) return '';
  const value = parseJson(text, 'X-Instance-Custom-Resource', BAD_REQUEST);
  if (
    !isJsonObject(value) ||
    !Object.values(value).every(amount => Number.isFinite(amount) && (amount as number) >= 0)
  ) {
    throw bad('X-Instance-Custom-Resource must be a JSON object of numbers that are not negative', BAD_REQUEST);
  }
  const names = Object.keys(value).sort();
  return names.length === 0 ? '' : JSON.stringify(Object.fromEntries(names.map(name => [name, value[name]])));
}

function readPoolLabels(text: string | undefined): string[] {
  if (text === undefined) return [];
  const value: unknown = text.startsWith('[')
    ? parseJson(text, 'X-Pool-Label', BAD_REQUEST)
    : text.split(',').map(label => label.trim());
  if (!Array.isArray(value) || value.length > MAX_LABELS || !value.every(label => typeof label === 'string')) {
    throw bad(`X-Pool-Label must be a list of at most ${MAX_LABELS} labels`, BAD_REQUEST);
  }
  return value as string[];
}

function readSession(text: string | undefined): SessionHeader | undefined {
  if (text === undefined) return undefined;
  if (!text.startsWith('{')) return { id: sessionId(text), concurrency: 1, ttlMs: 0 };
  const value = parseJson(text, 'X-Instance-Session', BAD_SESSION);
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

function sessionId(value: unknown): string {
  if (typeof value !== 'string' || value.length < 1 || value.length > 63) {
    throw bad('X-Instance-Session: sessionID must be a text of 1 to 63 characters', BAD_SESSION);
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
