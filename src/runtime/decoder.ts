import { USER_CODES } from '../core/codes.ts';
import { isJsonObject, type JsonObject } from '../core/json.ts';
import { LIMITS } from '../core/limits.ts';
import { isJson, staysInside } from '../lib/json-bytes.ts';
import { type CallOutcome, CHECKED_BYTES, notJson } from './call.ts';
import {
  type CallError,
  FRAME,
  type HelloOk,
  type InitOk,
  type Pong,
  PROTOCOL_VERSION,
  type Stopped,
} from './protocol.ts';

/**
 * What a runtime sent is not what the protocol allows: its connection ends. The messages have none of the runtime's own words, since
 * they reach logs and answers.
 */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
}

/** The codes that a runtime may answer with (docs/runtime-protocol.md); all others are the platform's own. */
const CODES: ReadonlySet<unknown> = new Set(Object.values(USER_CODES).map(row => row.code));
const STATES: ReadonlySet<unknown> = new Set<HelloOk['state']>(['new', 'initializing', 'ready', 'failed', 'stopping']);

/** Of one that is only numbers. */
const MAX_NUMBERS_BYTES = 4 * 1024;
/** The largest text of a runtime with every character written as an escape of its own, and room for the rest. */
const MAX_ERROR_BYTES = 1024 * 1024;
const MAX_NAME_CHARS = 256;
/** A handler that runs longer was not measured. */
const MAX_MICROS = 1e15;
const RESULT_HEAD_BYTES = 4;

/** The largest and the smallest payload of a frame; frames that a runtime never sends are missing. */
const PAYLOAD_BYTES: Readonly<Record<number, { readonly min: number; readonly max: number }>> = {
  [FRAME.HELLO_OK]: { min: 2, max: MAX_ERROR_BYTES },
  [FRAME.INIT_OK]: { min: 2, max: MAX_NUMBERS_BYTES },
  [FRAME.RESULT]: { min: RESULT_HEAD_BYTES, max: RESULT_HEAD_BYTES + LIMITS.responseBodyBytes },
  [FRAME.CHUNK]: { min: 0, max: LIMITS.frameBytes },
  [FRAME.ERROR]: { min: 2, max: MAX_ERROR_BYTES },
  [FRAME.PONG]: { min: 2, max: MAX_NUMBERS_BYTES },
  [FRAME.STOPPED]: { min: 2, max: MAX_ERROR_BYTES },
};

/** Checks what is known of a frame when its header came: none of its payload need be kept before. */
export function checkSize(type: number, payloadBytes: number): void {
  const allowed = PAYLOAD_BYTES[type];
  if (allowed === undefined) throw new ProtocolError(`a runtime sends no frame of type ${type}`);
  if (payloadBytes >= allowed.min && payloadBytes <= allowed.max) return;
  throw new ProtocolError(`${nameOf(type)} of ${payloadBytes} bytes (expected ${allowed.min} to ${allowed.max})`);
}

export function nameOf(type: number): string {
  return NAMES.get(type) ?? `a frame of type ${type}`;
}

const NAMES: ReadonlyMap<number, string> = new Map(Object.entries(FRAME).map(([name, type]) => [type, name]));

export function decodeHelloOk(payload: Buffer): HelloOk {
  const message = readObject(payload, 'HELLO_OK');
  const { version, state, stopsOverData, error } = message;
  if (version !== PROTOCOL_VERSION) throw new ProtocolError(`HELLO_OK must have version ${PROTOCOL_VERSION}`);
  if (!STATES.has(state)) throw new ProtocolError('HELLO_OK: no such state');
  const hello = {
    version,
    runtime: readName(message.runtime, 'HELLO_OK: runtime'),
    sdk: readName(message.sdk, 'HELLO_OK: sdk'),
    state: state as HelloOk['state'],
    ...(stopsOverData === true && { stopsOverData }),
  };
  return isNothing(error) ? hello : { ...hello, error: readError(error, 'HELLO_OK: error') };
}

export function decodeInitOk(payload: Buffer): InitOk {
  const { loadMicros, initMicros, beganMicros } = readObject(payload, 'INIT_OK');
  return {
    loadMicros: readNumber(loadMicros, 'INIT_OK: loadMicros'),
    initMicros: readNumber(initMicros, 'INIT_OK: initMicros'),
    ...(isNothing(beganMicros) ? {} : { beganMicros: readNumber(beganMicros, 'INIT_OK: beganMicros') }),
  };
}

export function decodePong(payload: Buffer): Pong {
  const { running, queued } = readObject(payload, 'PONG');
  return { running: readNumber(running, 'PONG: running'), queued: readNumber(queued, 'PONG: queued') };
}

export function decodeStopped(payload: Buffer): Stopped {
  const { error } = readObject(payload, 'STOPPED');
  return isNothing(error) ? {} : { error: readError(error, 'STOPPED: error') };
}

export function decodeError(payload: Buffer): CallError {
  return readError(parse(payload, 'ERROR'), 'ERROR');
}

/**
 * The value's bytes are put between others as they are, so they have to be one JSON value: brackets that they close and did not open would
 * end the answer around them, and what follows would be the handler's.
 */
export function decodeResult(payload: Buffer): CallOutcome {
  const runMicros = payload.readUInt32BE(0);
  const data = payload.subarray(RESULT_HEAD_BYTES);
  if (data.length <= CHECKED_BYTES ? isJson(data) : staysInside(data)) return { ok: true, data, runMicros };
  return notJson(runMicros);
}

function readObject(payload: Buffer, what: string): JsonObject {
  return asObject(parse(payload, what), what);
}

function parse(payload: Buffer, what: string): unknown {
  try {
    return JSON.parse(payload.toString());
  } catch {
    throw new ProtocolError(`${what} is not JSON`);
  }
}

function asObject(value: unknown, what: string): JsonObject {
  if (isJsonObject(value)) return value;
  throw new ProtocolError(`${what} must be a JSON object`);
}

function readError(value: unknown, what: string): CallError {
  const { code, message, runMicros } = asObject(value, what);
  if (!CODES.has(code)) throw new ProtocolError(`${what}: no code of a runtime`);
  if (typeof message !== 'string') throw new ProtocolError(`${what}: message must be a text`);
  const error = { code: code as number, message: cut(message) };
  return isNothing(runMicros) ? error : { ...error, runMicros: readNumber(runMicros, `${what}: runMicros`) };
}

const CUT_MARK = '...';

/** A text that a runtime has cut itself (its mark comes behind the bound) stays as it is. */
function cut(text: string): string {
  const { callErrorChars } = LIMITS;
  return text.length <= callErrorChars + CUT_MARK.length ? text : text.slice(0, callErrorChars) + CUT_MARK;
}

function readNumber(value: unknown, what: string): number {
  if (Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MAX_MICROS) return value as number;
  throw new ProtocolError(`${what} must be a whole number`);
}

/** One line of a few words. */
function readName(value: unknown, what: string): string {
  if (typeof value === 'string' && value.length <= MAX_NAME_CHARS && !/[^ -~]/.test(value)) return value;
  throw new ProtocolError(`${what} must be a line of at most ${MAX_NAME_CHARS} ASCII characters`);
}

/** Some languages write what is not there as null. */
function isNothing(value: unknown): boolean {
  return value === undefined || value === null;
}
