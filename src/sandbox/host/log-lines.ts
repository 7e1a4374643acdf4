const NEWLINE = 0x0a;
const PLUS = 0x2b;
/** 13 digits of milliseconds and a blank, or `+` when the line began in the file before. */
export const PREFIX_BYTES = 14;

/** Whether a file's first bytes go on with the last line of the file before. */
export function continuesLine(start: Buffer): boolean {
  return start.length >= PREFIX_BYTES && start[PREFIX_BYTES - 1] === PLUS;
}

/** Takes the prefixes off stored lines, and lines out that are too old. The format is told in `rookery_launcher/logfile.py`. */
export class LogLines {
  readonly #sinceMs: number | null;
  /** A line that has not ended yet. */
  #parts: Buffer[] = [];
  #isFileStart = false;

  constructor(sinceMs: number | null) {
    this.#sinceMs = sinceMs;
  }

  /** What comes next is the beginning of a file. */
  beginFile(): void {
    this.#isFileStart = true;
  }

  /** The whole lines that `chunk` completes, with their newlines. */
  push(chunk: Buffer): Buffer {
    let data = chunk;
    if (this.#isFileStart) {
      this.#isFileStart = false;
      // Its beginning may be lost with an older file: then it stands for itself.
      if (this.#parts.length > 0 && continuesLine(chunk)) data = chunk.subarray(PREFIX_BYTES);
    }
    const end = data.lastIndexOf(NEWLINE) + 1;
    if (end === 0) {
      if (data.length > 0) this.#parts.push(data);
      return Buffer.alloc(0);
    }
    const whole = Buffer.concat([...this.#parts, data.subarray(0, end)]);
    this.#parts = end < data.length ? [data.subarray(end)] : [];
    return this.#strip(whole);
  }

  /** The last line, ended, when it has no newline of its own. */
  end(): Buffer {
    if (this.#parts.length === 0) return Buffer.alloc(0);
    const whole = Buffer.concat([...this.#parts, Buffer.from('\n')]);
    this.#parts = [];
    return this.#strip(whole);
  }

  #strip(whole: Buffer): Buffer {
    const kept: Buffer[] = [];
    let at = 0;
    while (at < whole.length) {
      const next = whole.indexOf(NEWLINE, at) + 1;
      const isNew =
        this.#sinceMs === null || Number(whole.toString('latin1', at, at + PREFIX_BYTES - 1)) >= this.#sinceMs;
      if (isNew) kept.push(whole.subarray(at + PREFIX_BYTES, next));
      at = next;
    }
    return Buffer.concat(kept);
  }
}
