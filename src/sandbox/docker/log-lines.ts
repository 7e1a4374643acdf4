import { LIMITS } from '../../core/limits.ts';
import type { StreamFrame } from './multiplex.ts';

const NEWLINE = 0x0a;

/** Line of an output whose end has not arrived. */
interface OpenLine {
  parts: Buffer[];
  bytes: number;
}

/**
 * Joins the pieces of lines, for each output separately. The limit is `LIMITS.logLineBytes`, because a
 * container may write a line without an end. A longer line is passed on in pieces.
 */
export class LogLines {
  readonly #open: Record<'stdout' | 'stderr', OpenLine> = {
    stdout: { parts: [], bytes: 0 },
    stderr: { parts: [], bytes: 0 },
  };
  /** True when a piece without a line end has arrived. */
  hadPieces = false;

  /**
   * Adds a piece. Returns the line that it completes, or the piece collected so far of a line that is too
   * long; else nothing.
   */
  push({ isStderr, data }: StreamFrame): readonly Buffer[] {
    const open = this.#open[isStderr ? 'stderr' : 'stdout'];
    open.parts.push(data);
    open.bytes += data.length;
    if (isEnded(data)) return [take(open)];
    this.hadPieces = true;
    return open.bytes > LIMITS.logLineBytes ? [take(open)] : [];
  }

  /** Returns the unfinished lines, each with a line end. */
  end(): readonly Buffer[] {
    return [this.#open.stdout, this.#open.stderr].flatMap(open => {
      if (open.parts.length === 0) return [];
      open.parts.push(Buffer.from('\n'));
      return [take(open)];
    });
  }
}

/** Keeps the last lines, up to a limit in bytes. Above the limit it only counts lines. */
export class LastLines {
  readonly #count: number;
  readonly #maxBytes: number;
  #pieces: Buffer[] | null = [];
  #bytes = 0;
  #keptLines = 0;
  /** Number of all lines pushed. */
  lines = 0;

  constructor(count: number, maxBytes: number) {
    this.#count = count;
    this.#maxBytes = maxBytes;
  }

  /** Returns the last lines, or null when they exceed the limit in bytes. */
  get kept(): Buffer | null {
    return this.#pieces === null ? null : Buffer.concat(this.#pieces);
  }

  push(pieces: readonly Buffer[]): void {
    for (const piece of pieces) {
      if (isEnded(piece)) this.lines += 1;
      if (this.#pieces === null) continue;
      this.#pieces.push(piece);
      this.#bytes += piece.length;
      if (isEnded(piece)) this.#keptLines += 1;
    }
    this.#dropFirst();
    if (this.#bytes > this.#maxBytes) this.#pieces = null;
  }

  #dropFirst(): void {
    if (this.#pieces === null || this.#keptLines <= this.#count) return;
    let dropped = 0;
    while (this.#keptLines > this.#count) {
      const piece = this.#pieces[dropped++] as Buffer;
      this.#bytes -= piece.length;
      if (isEnded(piece)) this.#keptLines -= 1;
    }
    this.#pieces.splice(0, dropped);
  }
}

/** Drops the first lines of a log. */
export class FirstLines {
  #left: number;

  constructor(count: number) {
    this.#left = count;
  }

  without(pieces: readonly Buffer[]): readonly Buffer[] {
    let from = 0;
    while (this.#left > 0 && from < pieces.length) if (isEnded(pieces[from++] as Buffer)) this.#left -= 1;
    return pieces.slice(from);
  }
}

function isEnded(piece: Buffer): boolean {
  return piece.at(-1) === NEWLINE;
}

function take(open: OpenLine): Buffer {
  const whole = open.parts.length === 1 ? (open.parts[0] as Buffer) : Buffer.concat(open.parts);
  open.parts = [];
  open.bytes = 0;
  return whole;
}
