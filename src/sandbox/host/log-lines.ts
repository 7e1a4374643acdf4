import { LIMITS } from '../../core/limits.ts';

const NEWLINE = 0x0a;
const PLUS = 0x2b;
const EMPTY = Buffer.alloc(0);
/** 13 digits of milliseconds and a blank, or `+` when the line began in the file before. */
export const PREFIX_BYTES = 14;

/** Whether a file's first bytes go on with the last line of the file before. */
export function continuesLine(start: Buffer): boolean {
  return start.length >= PREFIX_BYTES && start[PREFIX_BYTES - 1] === PLUS;
}

/**
 * Takes the prefixes off stored lines, and lines out that are too old. The format stands in `rookery_zygote/logfile.py`.
 *
 * Code writes lines as long as it likes, and one that does not end would be kept for each of its readers: a line longer than
 * `LIMITS.logLineBytes` comes in pieces.
 */
export class LogLines {
  readonly #sinceMs: number | null;
  /** Of a line that has not ended yet, its prefix included when it began here. */
  #parts: Buffer[] = [];
  #partBytes = 0;
  /** Pieces of the line that runs have come already, or were left out. */
  #begun: 'shown' | 'left out' | null = null;
  #isFileStart = false;

  constructor(sinceMs: number | null) {
    this.#sinceMs = sinceMs;
  }

  /** The next bytes are the beginning of a file. */
  beginFile(): void {
    this.#isFileStart = true;
  }

  /** The whole lines that `chunk` completes, with their newlines. The bytes of `chunk` are used for them. */
  push(chunk: Buffer): Buffer {
    let data = chunk;
    if (this.#isFileStart) {
      this.#isFileStart = false;
      // Its beginning may be lost with an older file: then it stands for itself.
      const isOpen = this.#partBytes > 0 || this.#begun !== null;
      if (isOpen && continuesLine(chunk)) data = chunk.subarray(PREFIX_BYTES);
    }
    const end = data.lastIndexOf(NEWLINE) + 1;
    if (end === 0) {
      this.#keep(Buffer.from(data));
      return this.#partBytes > LIMITS.logLineBytes ? this.#piece() : EMPTY;
    }
    const whole = this.#take(data.subarray(0, end));
    if (end < data.length) this.#keep(Buffer.from(data.subarray(end)));
    return this.#strip(whole);
  }

  /** The last line, ended, when it has no newline of its own. */
  end(): Buffer {
    if (this.#partBytes === 0 && this.#begun === null) return EMPTY;
    return this.#strip(this.#take(Buffer.from('\n')));
  }

  /** `data` has to be a copy: the chunk belongs to its reader, who uses its memory again. */
  #keep(data: Buffer): void {
    if (data.length === 0) return;
    this.#parts.push(data);
    this.#partBytes += data.length;
  }

  #take(more: Buffer): Buffer {
    const whole = this.#parts.length === 0 ? more : Buffer.concat([...this.#parts, more]);
    this.#parts = [];
    this.#partBytes = 0;
    return whole;
  }

  /** The bytes so far of a line that is too long to wait for. */
  #piece(): Buffer {
    const piece = this.#take(EMPTY);
    if (this.#begun !== null) return this.#begun === 'shown' ? piece : EMPTY;
    this.#begun = this.#isShown(piece, 0) ? 'shown' : 'left out';
    return this.#begun === 'shown' ? piece.subarray(PREFIX_BYTES) : EMPTY;
  }

  /** In place: lines of a few bytes would else cost an object each, and all of them another copy. */
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
    return this.#sinceMs === null || Number(line.toString('latin1', at, at + PREFIX_BYTES - 1)) >= this.#sinceMs;
  }
}

/** Up to here a look at each byte is faster than a call of native code. */
const SHORT_BYTES = 64;

/** Behind the next newline, which must be there. */
function endOfLine(bytes: Buffer, from: number): number {
  const near = from + SHORT_BYTES;
  for (let at = from; at < near; at++) if (bytes[at] === NEWLINE) return at + 1;
  return bytes.indexOf(NEWLINE, near) + 1;
}

/** Moves what is from `from` to `end` forward to `to`, and answers where it ends there. */
function move(bytes: Buffer, to: number, from: number, end: number): number {
  if (end <= from) return to;
  if (end - from > SHORT_BYTES) bytes.copyWithin(to, from, end);
  else for (let at = 0; at < end - from; at++) bytes[to + at] = bytes[from + at] as number;
  return to + end - from;
}
