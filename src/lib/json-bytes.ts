import { isUtf8 } from 'node:buffer';
import { LIMITS } from '../core/limits.ts';

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
const MAX_LEVELS = LIMITS.jsonLevels;
const MAX_DIGITS = LIMITS.jsonNumberDigits;
/** Results of `endOfValue` in place of a position. */
const MALFORMED = -1;
const TOO_DEEP = -2;
const TOO_LONG = -3;

const containers = new Uint8Array(MAX_LEVELS);
/** Bitwise OR of the bytes in scanned texts; above 0x7f when a byte is not ASCII. */
let seen = 0;

/**
 * Returns true when bytes are one JSON value (RFC 8259) in UTF-8 within the bounds of LIMITS, with at most
 * `levels` levels. White space around the value is allowed. Builds no values, so a check costs a fraction of
 * parsing at every size, and no memory.
 */
export function isJson(bytes: Uint8Array, levels: number = MAX_LEVELS): boolean {
  seen = 0;
  return endOfValue(bytes, levels) === bytes.length && (seen < 0x80 || isUtf8(bytes));
}

/** Returns the exceeded bound of JSON bytes, as the end of a sentence about them; undefined without one. */
export function exceededBound(bytes: Uint8Array, levels: number = MAX_LEVELS): string | undefined {
  const end = endOfValue(bytes, levels);
  if (end === TOO_DEEP) return `is nested deeper than ${levels} levels`;
  return end === TOO_LONG ? `has a number of more than ${MAX_DIGITS} digits` : undefined;
}

/**
 * Returns true when any bytes in the place of a JSON value stay that one value. Each text and container that
 * begins in them must end in them. Outside of containers, no separator may begin another member. The bytes
 * need not be JSON; a JSON parser then fails later. The bounds of `isJson` apply.
 */
export function staysInside(bytes: Buffer): boolean {
  const { length } = bytes;
  if (mayHaveLongNumber(bytes) && !isJson(bytes)) return false;
  let depth = 0;
  let at = 0;
  while (at < length) {
    const kind = STRUCTURE[bytes[at] as number];
    at += 1;
    if (kind === NO_STRUCTURE) continue;
    if (kind === TEXT) {
      at = behindText(bytes, at);
      if (at < 0) return false;
    } else if (kind === OPENS) {
      depth += 1;
      if (depth > MAX_LEVELS) return false;
    } else if (kind === CLOSES) {
      depth -= 1;
      if (depth < 0) return false;
    } else if (depth === 0) return false;
  }
  return depth === 0;
}

/** Distance of two samples: a number beyond the bound fills at least one whole distance. */
const SAMPLE_BYTES = MAX_DIGITS >> 1;

/**
 * Returns true when bytes may have a number beyond the bound, inside or outside of a text. Reads only a few
 * bytes.
 */
function mayHaveLongNumber(bytes: Uint8Array): boolean {
  for (let at = SAMPLE_BYTES; at < bytes.length; at += SAMPLE_BYTES) {
    let back = at;
    while (back > at - SAMPLE_BYTES && isOfNumber(bytes[back])) back--;
    if (back === at - SAMPLE_BYTES) return true;
  }
  return false;
}

function isOfNumber(byte: number | undefined): boolean {
  return isDigit(byte) || byte === DOT || byte === PLUS || byte === MINUS || byte === 0x65 || byte === 0x45;
}

/** Returns true when more digits than a number may have lie between `from` and `end`. */
function hasLongNumber(bytes: Uint8Array, from: number, end: number): boolean {
  let digits = 0;
  for (let at = from; at < end; at++) if (isDigit(bytes[at])) digits += 1;
  return digits > MAX_DIGITS;
}

const NO_STRUCTURE = 0;
const TEXT = 1;
const OPENS = 2;
const CLOSES = 3;
const SEPARATES = 4;
/** Indexed by byte. */
const STRUCTURE = Uint8Array.from({ length: 256 }, (_, byte) => {
  const character = String.fromCharCode(byte);
  if (character === '"') return TEXT;
  if (character === '[' || character === '{') return OPENS;
  if (character === ']' || character === '}') return CLOSES;
  return character === ',' || character === ':' ? SEPARATES : NO_STRUCTURE;
});
/**
 * Length within which names and other short texts end. Beyond it, a native search is faster than a loop over
 * bytes.
 */
const NEAR_BYTES = 24;

/** Returns the position after the closing quote; -1 without one. Accepts any bytes before the quote. */
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

/**
 * Returns the position after the value and its trailing white space. Returns a negative number when the value
 * is malformed or exceeds a bound.
 */
function endOfValue(bytes: Uint8Array, levels: number): number {
  let depth = 0;
  let at = afterSpace(bytes, 0);
  for (;;) {
    // A value begins here.
    const first = bytes[at];
    if (first === QUOTE) at = endOfText(bytes, at + 1);
    else if (first === OPEN_OBJECT || first === OPEN_LIST) {
      if (depth === levels) return TOO_DEEP;
      // Each closing bracket has the code of its opening one plus 2.
      const close = first + 2;
      at = afterSpace(bytes, at + 1);
      if (bytes[at] !== close) {
        containers[depth++] = close;
        if (close === CLOSE_OBJECT) at = afterKey(bytes, at);
        if (at < 0) return MALFORMED;
        continue;
      }
      at += 1;
    } else {
      const from = at;
      at = endOfScalar(bytes, from);
      if (at - from > MAX_DIGITS && hasLongNumber(bytes, from, at)) return TOO_LONG;
    }
    if (at < 0) return MALFORMED;
    // A value has ended: its container continues, or ends too.
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
      if (next !== COMMA) return MALFORMED;
      at = afterSpace(bytes, at + 1);
      if (close === CLOSE_OBJECT) at = afterKey(bytes, at);
      if (at < 0) return MALFORMED;
      break;
    }
  }
}

function afterSpace(bytes: Uint8Array, from: number): number {
  let at = from;
  for (let byte = bytes[at]; byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09; byte = bytes[at]) at++;
  return at;
}

/** Returns the position after a member's name and its colon. */
function afterKey(bytes: Uint8Array, from: number): number {
  if (bytes[from] !== QUOTE) return -1;
  let at = endOfText(bytes, from + 1);
  if (at < 0) return -1;
  at = afterSpace(bytes, at);
  return bytes[at] === COLON ? afterSpace(bytes, at + 1) : -1;
}

/** Returns the position after the closing quote. */
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

/** Indexed by byte: 1 for bytes that a text may contain unescaped. */
const PLAIN = Uint8Array.from({ length: 256 }, (_, byte) =>
  Number(byte >= 0x20 && byte !== QUOTE && byte !== BACKSLASH),
);
/** Indexed by byte: 1 for bytes that may follow a backslash alone. */
const ESCAPED = Uint8Array.from({ length: 256 }, (_, byte) => Number('"\\/bfnrt'.includes(String.fromCharCode(byte))));

function isHex(byte: number | undefined): boolean {
  if (byte === undefined) return false;
  const letter = byte | 0x20;
  return (byte >= ZERO && byte <= NINE) || (letter >= 0x61 && letter <= 0x66);
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= ZERO && byte <= NINE;
}

/** Returns the position after a number, `true`, `false` or `null`. */
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

/** Returns the position after at least one digit; -1 without a digit. */
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
