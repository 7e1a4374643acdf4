import { LIMITS } from '../../core/limits.ts';

const NEWLINE = 0x0a;
const PLUS = 0x2b;
const EMPTY = Buffer.alloc(0);
/** Length of a stored line's prefix: milliseconds (13 digits) and a blank, or `+` for a continued line. */
export const PREFIX_BYTES = 14;

/** Checks whether a file's first bytes continue the last line of the previous file. */
export function continuesLine(start: Buffer): boolean {
  return start.length >= PREFIX_BYTES && start[PREFIX_BYTES - 1] === PLUS;
}

/**
 * Removes the prefixes from stored lines, and drops lines that are too old or too new.
 * `rookery_zygote/logfile.py` has the format.
 *
 * A line longer than `LIMITS.logLineBytes` is returned in pieces. Otherwise an endless line would be buffered
 * for each reader.
 */
export class LogLines {
  readonly #sinceMs: number | null;
  readonly #untilMs: number;
  /** Parts of an unfinished line, including its prefix if it began here. */
  #parts: Buffer[] = [];
  #partBytes = 0;
  /** Set when pieces of the current line were already returned, or left out. */
  #begun: 'shown' | 'left out' | null = null;
  #isFileStart = false;

  constructor(sinceMs: number | null, untilMs = Number.POSITIVE_INFINITY) {
    this.#sinceMs = sinceMs;
    this.#untilMs = untilMs;
  }

  /** Announces that the next bytes are the beginning of a file. */
  startFile(): void {
    this.#isFileStart = true;
  }

  /**
   * Returns the whole lines that `chunk` completes, with their newlines. Reuses the bytes of `chunk` for
   * them.
   */
  push(chunk: Buffer): Buffer {
    let data = chunk;
    if (this.#isFileStart) {
      this.#isFileStart = false;
      // The line's beginning may be lost with an older file. Then the rest counts as a line.
      const isOpen = this.#partBytes > 0 || this.#begun !== null;
      if (isOpen && continuesLine(chunk)) data = chunk.subarray(PREFIX_BYTES);
    }
    const end = data.lastIndexOf(NEWLINE) + 1;
    if (end === 0) {
      this.#append(Buffer.from(data));
      return this.#partBytes > LIMITS.logLineBytes ? this.#piece() : EMPTY;
    }
    const whole = this.#drainWith(data.subarray(0, end));
    if (end < data.length) this.#append(Buffer.from(data.subarray(end)));
    return this.#strip(whole);
  }

  /** Returns the last line with a newline if it had none. */
  end(): Buffer {
    if (this.#partBytes === 0 && this.#begun === null) return EMPTY;
    return this.#strip(this.#drainWith(Buffer.from('\n')));
  }

  /** Stores `data`, which must be a copy: the reader reuses the chunk's memory. */
  #append(data: Buffer): void {
    if (data.length === 0) return;
    this.#parts.push(data);
    this.#partBytes += data.length;
  }

  #drainWith(more: Buffer): Buffer {
    const whole = this.#parts.length === 0 ? more : Buffer.concat([...this.#parts, more]);
    this.#parts = [];
    this.#partBytes = 0;
    return whole;
  }

  /** Returns the bytes so far of a line that is too long to buffer. */
  #piece(): Buffer {
    const piece = this.#drainWith(EMPTY);
    if (this.#begun !== null) return this.#begun === 'shown' ? piece : EMPTY;
    this.#begun = this.#isShown(piece, 0) ? 'shown' : 'left out';
    return this.#begun === 'shown' ? piece.subarray(PREFIX_BYTES) : EMPTY;
  }

  /**
   * Removes prefixes in place. Otherwise short lines would cost an object each, and all lines another copy.
   */
  #strip(whole: Buffer): Buffer {
    let kept = 0;
    let at = 0;
    if (this.#begun !== null) {
      at = whole.indexOf(NEWLINE) + 1;
      if (this.#begun === 'shown') kept = at;
      this.#begun = null;
    }
    while (at < whole.length) {
      const next = endOfLine(whole, at);
      if (this.#isShown(whole, at)) kept = move(whole, kept, at + PREFIX_BYTES, next);
      at = next;
    }
    return whole.subarray(0, kept);
  }

  #isShown(line: Buffer, at: number): boolean {
    if (this.#sinceMs === null && this.#untilMs === Number.POSITIVE_INFINITY) return true;
    const atMs = Number(line.toString('latin1', at, at + PREFIX_BYTES - 1));
    return atMs >= (this.#sinceMs ?? 0) && atMs < this.#untilMs;
  }
}

/** Length up to which a loop over the bytes is faster than a native call. */
const SHORT_BYTES = 64;

/** Returns the position after the next newline, which must exist. */
function endOfLine(bytes: Buffer, from: number): number {
  const near = from + SHORT_BYTES;
  for (let at = from; at < near; at++) if (bytes[at] === NEWLINE) return at + 1;
  return bytes.indexOf(NEWLINE, near) + 1;
}

/** Moves the bytes from `from` to `end` forward to `to`, and returns the end of the moved bytes. */
function move(bytes: Buffer, to: number, from: number, end: number): number {
  if (end <= from) return to;
  if (end - from > SHORT_BYTES) bytes.copyWithin(to, from, end);
  else for (let at = 0; at < end - from; at++) bytes[to + at] = bytes[from + at] as number;
  return to + end - from;
}
