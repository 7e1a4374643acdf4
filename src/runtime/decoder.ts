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
 * A violation of the protocol by the runtime, which ends its connection.
 * The messages contain none of the runtime's own text, because they reach logs and answers.
 */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
}

/**
 * The codes that a runtime may answer with (docs/reference/runtime-protocol.md); all others are the
 * platform's own.
 */
const CODES: ReadonlySet<unknown> = new Set(Object.values(USER_CODES).map(row => row.code));
const STATES: ReadonlySet<unknown> = new Set<HelloOk['state']>(['new', 'initializing', 'ready', 'failed', 'stopping']);

/** Limit of a payload that contains only numbers. */
const MAX_NUMBERS_BYTES = 4 * 1024;
/** Limit of an error: the largest text with every character escaped, and space for the rest. */
const MAX_ERROR_BYTES = 1024 * 1024;
const MAX_NAME_CHARS = 256;
/** Maximum number of microseconds; a larger value cannot be a measurement. */
const MAX_MICROS = 1e15;
const RESULT_HEAD_BYTES = 4;
/** Flags, and the length of the alarms. */
export const SAVE_HEAD_BYTES = 5;

/** All alarms of an agent that a SAVE may change, each with its name and times. */
const MAX_ALARMS_BYTES = LIMITS.alarms.perAgent * (LIMITS.alarms.payloadBytes + 2048);

/** The smallest and the largest payload of each frame that a runtime may send. */
const PAYLOAD_BYTES: Readonly<Record<number, { readonly min: number; readonly max: number }>> = {
  [FRAME.HELLO_OK]: { min: 2, max: MAX_ERROR_BYTES },
  [FRAME.INIT_OK]: { min: 2, max: MAX_NUMBERS_BYTES },
  [FRAME.RESULT]: { min: RESULT_HEAD_BYTES, max: RESULT_HEAD_BYTES + LIMITS.responseBodyBytes },
  [FRAME.CHUNK]: { min: 0, max: LIMITS.frameBytes },
  [FRAME.ERROR]: { min: 2, max: MAX_ERROR_BYTES },
  [FRAME.PONG]: { min: 2, max: MAX_NUMBERS_BYTES },
  [FRAME.STOPPED]: { min: 2, max: MAX_ERROR_BYTES },
  [FRAME.SPANS]: { min: 2, max: LIMITS.callSpansBytes.sent },
  [FRAME.KEEP_AWAKE]: { min: 4, max: 4 },
  [FRAME.ALARMS]: { min: 2, max: MAX_ALARMS_BYTES },
  [FRAME.SAVE]: { min: SAVE_HEAD_BYTES + 2, max: SAVE_HEAD_BYTES + MAX_ALARMS_BYTES + LIMITS.stateBytes },
};

/** Checks a frame's type and size when its header arrives, before any of its payload is kept. */
export function checkSize(type: number, payloadBytes: number): void {
  const allowed = PAYLOAD_BYTES[type];
  if (allowed === undefined) throw new ProtocolError(`a runtime sends no frame of type ${type}`);
  if (payloadBytes >= allowed.min && payloadBytes <= allowed.max) return;
  throw new ProtocolError(`${nameOf(type)} of ${payloadBytes} bytes (expected ${allowed.min} to ${allowed.max})`);
}

/** Returns true for the frames that answer a call. */
export function endsCall(type: number): boolean {
  return type === FRAME.RESULT || type === FRAME.ERROR;
}

export function nameOf(type: number): string {
  return NAMES.get(type) ?? `a frame of type ${type}`;
}

const NAMES: ReadonlyMap<number, string> = new Map(Object.entries(FRAME).map(([name, type]) => [type, name]));

export function decodeHelloOk(payload: Buffer): HelloOk {
  const message = readObject(payload, 'HELLO_OK');
  const { version, state, stopsOverData, durable, stateVersion, keepAwakeSeconds, error } = message;
  if (version !== PROTOCOL_VERSION) throw new ProtocolError(`HELLO_OK must have version ${PROTOCOL_VERSION}`);
  if (!STATES.has(state)) throw new ProtocolError('HELLO_OK: no such state');
  const hello = {
    version,
    runtime: readName(message.runtime, 'HELLO_OK: runtime'),
    sdk: readName(message.sdk, 'HELLO_OK: sdk'),
    state: state as HelloOk['state'],
    ...(stopsOverData === true && { stopsOverData }),
    ...(!isNothing(durable) && { durable: readNumber(durable, 'HELLO_OK: durable') }),
    ...(!isNothing(keepAwakeSeconds) && {
      keepAwakeSeconds: readNumber(keepAwakeSeconds, 'HELLO_OK: keepAwakeSeconds'),
    }),
    ...(!isNothing(stateVersion) && { stateVersion: readNumber(stateVersion, 'HELLO_OK: stateVersion') }),
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

/** Decodes an ERROR that answers a call. */
export function decodeFailure(payload: Buffer): CallOutcome {
  const { code, message, runMicros } = decodeError(payload);
  return { ok: false, code, text: message, runMicros: runMicros ?? 0 };
}

/**
 * Decodes a RESULT. Its bytes must be exactly one JSON value, because they are copied into other JSON
 * unchanged.
 * With unbalanced brackets, the handler could end the surrounding answer and write the rest itself.
 */
export function decodeResult(payload: Buffer): CallOutcome {
  const runMicros = payload.readUInt32BE(0);
  const data = payload.subarray(RESULT_HEAD_BYTES);
  if (data.length <= CHECKED_BYTES ? isJson(data) : staysInside(data)) return { ok: true, data, runMicros };
  return notJson(data, runMicros);
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

/**
 * Cuts a text to the limit. A text that the runtime has cut itself, with its mark after the limit, is
 * unchanged.
 */
function cut(text: string): string {
  const { callErrorChars } = LIMITS;
  return text.length <= callErrorChars + CUT_MARK.length ? text : text.slice(0, callErrorChars) + CUT_MARK;
}

function readNumber(value: unknown, what: string): number {
  if (Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MAX_MICROS) return value as number;
  throw new ProtocolError(`${what} must be a whole number`);
}

/** Reads a name: one line of a few words. */
function readName(value: unknown, what: string): string {
  if (typeof value === 'string' && value.length <= MAX_NAME_CHARS && !/[^ -~]/.test(value)) return value;
  throw new ProtocolError(`${what} must be a line of at most ${MAX_NAME_CHARS} ASCII characters`);
}

/** Checks for a missing value. Some languages write null for it. */
function isNothing(value: unknown): boolean {
  return value === undefined || value === null;
}
