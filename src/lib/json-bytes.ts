import { isUtf8 } from 'node:buffer';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const MINUS = 0x2d;
const PLUS = 0x2b;
const DOT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const OPEN_LIST = 0x5b;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
/** As deep as most values are; it grows when one is deeper. */
const FIRST_DEPTH = 64;

let containers = new Uint8Array(FIRST_DEPTH);
/** Whether the text that was looked at has bytes above ASCII. */
let seen = 0;

/**
 * Whether bytes are one JSON value (RFC 8259) in UTF-8, white space around it allowed. Nothing is made of them: for what is only passed on
 * this costs a fraction of parsing it, for a value of some bytes as for one of megabytes, and no memory.
 */
export function isJson(bytes: Uint8Array): boolean {
  seen = 0;
  const isValue = endOfValue(bytes) === bytes.length;
  if (containers.length > 64 * FIRST_DEPTH) containers = new Uint8Array(FIRST_DEPTH);
  return isValue && (seen < 0x80 || isUtf8(bytes));
}

/**
 * Whether bytes that stand where JSON has a value stay that one value, whatever they are: each text and container that begins in them ends
 * in them, and nothing stands between containers that would begin another member. They need not be JSON; who reads them as JSON then fails.
 */
export function staysInside(bytes: Buffer): boolean {
  const { length } = bytes;
  let depth = 0;
  let at = 0;
  while (at < length) {
    const kind = STRUCTURE[bytes[at] as number];
    at += 1;
    if (kind === NO_STRUCTURE) continue;
    if (kind === TEXT) {
      at = behindText(bytes, at);
      if (at < 0) return false;
    } else if (kind === OPENS) depth += 1;
    else if (kind === CLOSES) {
      depth -= 1;
      if (depth < 0) return false;
    } else if (depth === 0) return false;
  }
  return depth === 0;
}

const NO_STRUCTURE = 0;
const TEXT = 1;
const OPENS = 2;
const CLOSES = 3;
const SEPARATES = 4;
/** By byte. */
const STRUCTURE = Uint8Array.from({ length: 256 }, (_, byte) => {
  const character = String.fromCharCode(byte);
  if (character === '"') return TEXT;
  if (character === '[' || character === '{') return OPENS;
  if (character === ']' || character === '}') return CLOSES;
  return character === ',' || character === ':' ? SEPARATES : NO_STRUCTURE;
});
/** Texts of names and the like end within it; behind it a search in native code is faster than a look at each byte. */
const NEAR_BYTES = 24;

/** Behind the closing quote, whatever stands before it; -1 when there is none. */
function behindText(bytes: Buffer, from: number): number {
  const near = Math.min(bytes.length, from + NEAR_BYTES);
  let at = from;
  for (; at < near; at++) {
    const byte = bytes[at];
    if (byte === QUOTE) return at + 1;
    if (byte === BACKSLASH) at += 1;
  }
  const searched = at;
  for (;;) {
    const quote = bytes.indexOf(QUOTE, at);
    if (quote < 0) return -1;
    let escapes = 0;
    while (quote - escapes > searched && bytes[quote - escapes - 1] === BACKSLASH) escapes += 1;
    if (escapes % 2 === 0) return quote + 1;
    at = quote + 1;
  }
}

/** Behind the value and the white space after it; -1 when it is not well formed. */
function endOfValue(bytes: Uint8Array): number {
  let depth = 0;
  let at = afterSpace(bytes, 0);
  for (;;) {
    // A value begins here.
    const first = bytes[at];
    if (first === QUOTE) at = endOfText(bytes, at + 1);
    else if (first === OPEN_OBJECT || first === OPEN_LIST) {
      if (depth === containers.length) containers = grown(containers);
      // Both closing brackets are two behind those that open.
      const close = first + 2;
      at = afterSpace(bytes, at + 1);
      if (bytes[at] !== close) {
        containers[depth++] = close;
        if (close === CLOSE_OBJECT) at = afterKey(bytes, at);
        if (at < 0) return -1;
        continue;
      }
      at += 1;
    } else at = endOfScalar(bytes, at);
    if (at < 0) return -1;
    // A value has ended: what holds it goes on, or ends too.
    for (;;) {
      at = afterSpace(bytes, at);
      if (depth === 0) return at;
      const close = containers[depth - 1];
      const next = bytes[at];
      if (next === close) {
        depth -= 1;
        at += 1;
        continue;
      }
      if (next !== COMMA) return -1;
      at = afterSpace(bytes, at + 1);
      if (close === CLOSE_OBJECT) at = afterKey(bytes, at);
      if (at < 0) return -1;
      break;
    }
  }
}

function afterSpace(bytes: Uint8Array, from: number): number {
  let at = from;
  for (let byte = bytes[at]; byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09; byte = bytes[at]) at++;
  return at;
}

/** Behind a member's name and its colon. */
function afterKey(bytes: Uint8Array, from: number): number {
  if (bytes[from] !== QUOTE) return -1;
  let at = endOfText(bytes, from + 1);
  if (at < 0) return -1;
  at = afterSpace(bytes, at);
  return bytes[at] === COLON ? afterSpace(bytes, at + 1) : -1;
}

/** Behind the closing quote. */
function endOfText(bytes: Uint8Array, from: number): number {
  const { length } = bytes;
  let high = seen;
  let at = from;
  while (at < length) {
    const byte = bytes[at] as number;
    at += 1;
    if (PLAIN[byte] === 1) {
      high |= byte;
      continue;
    }
    if (byte === QUOTE) {
      seen = high;
      return at;
    }
    if (byte !== BACKSLASH || at >= length) return -1;
    const escaped = bytes[at] as number;
    at += 1;
    if (ESCAPED[escaped] === 1) continue;
    if (escaped !== 0x75 /* u */ || at + 4 > length) return -1;
    for (const end = at + 4; at < end; at++) if (!isHex(bytes[at])) return -1;
  }
  return -1;
}

/** By byte, 1 for what may stand in a text as it is. */
const PLAIN = Uint8Array.from({ length: 256 }, (_, byte) =>
  Number(byte >= 0x20 && byte !== QUOTE && byte !== BACKSLASH),
);
/** By byte, 1 for what may stand behind a backslash alone. */
const ESCAPED = Uint8Array.from({ length: 256 }, (_, byte) => Number('"\\/bfnrt'.includes(String.fromCharCode(byte))));

function isHex(byte: number | undefined): boolean {
  if (byte === undefined) return false;
  const letter = byte | 0x20;
  return (byte >= ZERO && byte <= NINE) || (letter >= 0x61 && letter <= 0x66);
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= ZERO && byte <= NINE;
}

/** Behind a number, `true`, `false` or `null`. */
function endOfScalar(bytes: Uint8Array, from: number): number {
  const first = bytes[from];
  if (first === 0x74) return endOfWord(bytes, from, TRUE);
  if (first === 0x66) return endOfWord(bytes, from, FALSE);
  if (first === 0x6e) return endOfWord(bytes, from, NULL);
  let at = first === MINUS ? from + 1 : from;
  if (bytes[at] === ZERO) at += 1;
  else at = afterDigits(bytes, at);
  if (at > 0 && bytes[at] === DOT) at = afterDigits(bytes, at + 1);
  if (at > 0 && ((bytes[at] as number) | 0x20) === 0x65) {
    at += 1;
    if (bytes[at] === PLUS || bytes[at] === MINUS) at += 1;
    at = afterDigits(bytes, at);
  }
  return at;
}

/** Behind at least one digit. */
function afterDigits(bytes: Uint8Array, from: number): number {
  let at = from;
  while (isDigit(bytes[at])) at++;
  return at === from ? -1 : at;
}

const TRUE = [...Buffer.from('true')];
const FALSE = [...Buffer.from('false')];
const NULL = [...Buffer.from('null')];

function endOfWord(bytes: Uint8Array, from: number, word: readonly number[]): number {
  for (let at = 0; at < word.length; at++) if (bytes[from + at] !== word[at]) return -1;
  return from + word.length;
}

function grown(held: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const larger = new Uint8Array(held.length * 2);
  larger.set(held);
  return larger;
}
