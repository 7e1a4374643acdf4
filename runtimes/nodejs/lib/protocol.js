'use strict';

/** Wire format of the runtime protocol, version 1. Specified in docs/reference/runtime-protocol.md. */

const VERSION = 1;

const FRAME = Object.freeze({
  HELLO: 1,
  HELLO_OK: 2,
  INIT: 3,
  INIT_OK: 4,
  CALL: 5,
  RESULT: 6,
  CHUNK: 7,
  ERROR: 8,
  CANCEL: 9,
  CREDIT: 10,
  PING: 11,
  PONG: 12,
  STOP: 13,
  STOPPED: 14,
  SAVE: 15,
  SAVED: 16,
  SPANS: 17,
  KEEP_AWAKE: 18,
  ALARMS: 19,
  ALARM_LIST: 20,
});

const CODE = Object.freeze({
  PROTOCOL: 4000,
  LOAD: 4001,
  HANDLER: 4002,
  TOO_LARGE: 4004,
  NOT_JSON: 4007,
  PRE_STOP: 4009,
  TIMEOUT: 4010,
  INITIALIZER: 4201,
  INITIALIZER_TIMEOUT: 4211,
});

/** Size of the type and the call id, which a frame's length includes. */
const OVERHEAD_BYTES = 5;
const HEADER_BYTES = 4 + OVERHEAD_BYTES;
/** Flags and the length of the alarms. */
const SAVE_HEAD_BYTES = 5;
const MAX_FRAME_BYTES = 7 * 1024 * 1024;
/** Limit for the text of an ERROR, since an error's own text may have any length. */
const MAX_MESSAGE_CHARS = 64 * 1024;

/** The other side violated the protocol. */
class ProtocolError extends Error {}

function frame(type, callId, payload) {
  const bytes = payload === undefined ? 0 : Buffer.byteLength(payload);
  const made = start(type, callId, bytes);
  if (typeof payload === 'string') made.write(payload, HEADER_BYTES);
  else if (payload !== undefined) payload.copy(made, HEADER_BYTES);
  return made;
}

function messageFrame(type, callId, message) {
  return frame(type, callId, JSON.stringify(message));
}

/** Returns a RESULT frame. `json` is a text of `bytes` bytes. */
function resultFrame(callId, micros, json, bytes) {
  const made = start(FRAME.RESULT, callId, 4 + bytes);
  made.writeUInt32BE(Math.min(micros, 0xffff_ffff), HEADER_BYTES);
  made.write(json, HEADER_BYTES + 4);
  return made;
}

/** Returns a SAVE frame without alarms. `callId` 0: the save belongs to no answer. */
function saveFrame(callId, json, bytes, alarms = '') {
  const alarmBytes = Buffer.byteLength(alarms);
  const made = start(FRAME.SAVE, callId, SAVE_HEAD_BYTES + alarmBytes + bytes);
  made[HEADER_BYTES] = 0;
  made.writeUInt32BE(alarmBytes, HEADER_BYTES + 1);
  made.write(alarms, HEADER_BYTES + SAVE_HEAD_BYTES);
  made.write(json, HEADER_BYTES + SAVE_HEAD_BYTES + alarmBytes);
  return made;
}

function keepAwakeFrame(seconds) {
  const made = start(FRAME.KEEP_AWAKE, 0, 4);
  made.writeUInt32BE(seconds, HEADER_BYTES);
  return made;
}

function errorFrame(callId, failure, runMicros) {
  const message = { code: failure.code, message: failure.message };
  if (runMicros !== undefined) message.runMicros = runMicros;
  return messageFrame(FRAME.ERROR, callId, message);
}

function start(type, callId, bytes) {
  const made = Buffer.allocUnsafe(HEADER_BYTES + bytes);
  made.writeUInt32BE(OVERHEAD_BYTES + bytes, 0);
  made[4] = type;
  made.writeUInt32BE(callId, 5);
  return made;
}

/** Returns the object in a payload. Throws ProtocolError. */
function readMessage(payload, what) {
  let value;
  try {
    value = JSON.parse(payload.toString());
  } catch {
    throw new ProtocolError(`${what} is not JSON`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ProtocolError(`${what} must be a JSON object`);
  }
  return value;
}

/**
 * Splits received bytes into frames. Payloads share memory with the received chunks: copy one before keeping
 * it long.
 */
class FrameReader {
  #chunks = [];
  #bytes = 0;
  #needed = HEADER_BYTES;

  push(chunk) {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
  }

  /** Returns the next frame, or null until more bytes arrive. Throws ProtocolError. */
  next() {
    if (this.#bytes < this.#needed) return null;
    const data = this.#chunks.length === 1 ? this.#chunks[0] : Buffer.concat(this.#chunks, this.#bytes);
    const length = data.readUInt32BE(0);
    if (length < OVERHEAD_BYTES || length > MAX_FRAME_BYTES) {
      throw new ProtocolError(`a frame of ${length} bytes; ${OVERHEAD_BYTES} to ${MAX_FRAME_BYTES} are allowed`);
    }
    const end = 4 + length;
    if (data.length < end) {
      this.#chunks = [data];
      this.#needed = end;
      return null;
    }
    this.#chunks = data.length === end ? [] : [data.subarray(end)];
    this.#bytes = data.length - end;
    this.#needed = HEADER_BYTES;
    return { type: data[4], callId: data.readUInt32BE(5), payload: data.subarray(HEADER_BYTES, end) };
  }
}

module.exports = {
  CODE,
  FRAME,
  FrameReader,
  HEADER_BYTES,
  MAX_FRAME_BYTES,
  MAX_MESSAGE_CHARS,
  OVERHEAD_BYTES,
  ProtocolError,
  VERSION,
  errorFrame,
  frame,
  messageFrame,
  readMessage,
  resultFrame,
  saveFrame,
  keepAwakeFrame,
};
