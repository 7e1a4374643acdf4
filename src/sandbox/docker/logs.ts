import type { Readable } from 'node:stream';
import { LIMITS } from '../../core/limits.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import type { LogRequest } from '../driver.ts';
import { type Engine, FrameSplitter, type StreamFrame, statusOf } from './engine.ts';

/** Memory limit for the last lines. Beyond it the log is read a second time instead. */
const MAX_KEPT_BYTES = 1024 * 1024;

/**
 * Yields the lines of a container's log. The daemon stores lines above 16 KiB in pieces and counts pieces for
 * `tail`, so the pieces are joined here. A removed container has no lines.
 */
export async function* readLogs(
  engine: Engine,
  container: string,
  request: LogRequest,
  signal: AbortSignal,
): AsyncIterable<Buffer> {
  if (signal.aborted || (request.tail === 0 && !request.follow)) return;
  if (request.tail !== null && !request.follow) {
    yield* readTail(engine, container, request.tail, request, signal);
    return;
  }
  const lines = new ContainerLogLines();
  for await (const pieces of linesOf(engine, container, request, lines, signal)) yield Buffer.concat(pieces);
  if (!signal.aborted) yield* lines.end();
}

/**
 * Yields the last `count` lines. Asks the daemon for one piece more, to find where the first line begins.
 * Reads the whole log only if a piece is not a whole line.
 */
async function* readTail(
  engine: Engine,
  container: string,
  count: number,
  request: LogRequest,
  signal: AbortSignal,
): AsyncIterable<Buffer> {
  for (const tail of [count + 1, null]) {
    const lines = new ContainerLogLines();
    const last = new LastLines(count, MAX_KEPT_BYTES);
    for await (const pieces of linesOf(engine, container, { ...request, tail }, lines, signal)) last.push(pieces);
    if (lines.hadPieces && tail !== null) continue;
    last.push(lines.end());
    const { kept } = last;
    if (signal.aborted) return;
    if (kept !== null) {
      if (kept.length > 0) yield kept;
      return;
    }
    // A slow reader could hold this memory for long. Read the log again, from the first of the last lines.
    const again = new ContainerLogLines();
    const skipped = new FirstLines(last.lines - count);
    for await (const pieces of linesOf(engine, container, { ...request, tail }, again, signal)) {
      const shown = Buffer.concat(skipped.without(pieces));
      if (shown.length > 0) yield shown;
    }
    if (!signal.aborted) yield* skipped.without(again.end());
    return;
  }
}

/**
 * Yields the log of a container as lines, or as pieces of long lines. Yields nothing for a removed container.
 * Otherwise the first value is empty: a daemon since version 23 answers when it has fixed where its reading
 * begins.
 */
async function* linesOf(
  engine: Engine,
  container: string,
  request: LogRequest,
  lines: ContainerLogLines,
  signal: AbortSignal,
): AsyncIterable<readonly Buffer[]> {
  const stream = await open(engine, container, request, request.tail);
  if (stream === null) return;
  yield [];
  for await (const frames of framesOf(stream, signal)) {
    const pieces = frames.flatMap(frame => lines.push(frame));
    if (pieces.length > 0) yield pieces;
  }
}

/** Opens the log stream. Returns null when the container does not exist. */
async function open(
  engine: Engine,
  container: string,
  { follow, sinceMs, untilMs }: LogRequest,
  tail: number | null,
): Promise<Readable | null> {
  const options = {
    stdout: true,
    stderr: true,
    follow,
    tail: tail === null ? 'all' : String(tail),
    ...(sinceMs === null ? {} : { since: (sinceMs / 1000).toFixed(3) }),
    ...(untilMs === undefined ? {} : { until: (untilMs / 1000).toFixed(3) }),
  };
  try {
    // The library streams only requests with `follow`, so dial directly. The wire format is the same.
    const read = (docker: Parameters<Parameters<Engine['request']>[1]>[0]) => readStream(docker, container, options);
    return await engine.request('read a log', read);
  } catch (error) {
    if (statusOf(error) === 404 || statusOf(error) === 409) return null;
    throw error;
  }
}

function readStream(
  docker: Parameters<Parameters<Engine['request']>[1]>[0],
  container: string,
  options: object,
): Promise<Readable> {
  return new Promise((resolve, reject) => {
    docker.modem.dial(
      {
        path: `/containers/${container}/logs?`,
        method: 'GET',
        isStream: true,
        statusCodes: { 200: true, 404: 'no such container', 409: 'being removed', 500: 'server error' },
        options,
      },
      (error, data) => (error ? reject(error) : resolve(data as Readable)),
    );
  });
}

async function* framesOf(stream: Readable, signal: AbortSignal): AsyncIterable<readonly StreamFrame[]> {
  const letGo = onAbort(signal, () => stream.destroy());
  const splitter = new FrameSplitter();
  try {
    if (signal.aborted) return;
    for await (const chunk of stream) {
      const frames = splitter.push(chunk as Buffer);
      if (frames.length > 0) yield frames;
    }
  } catch (error) {
    // The reader gave up or the daemon closed the connection. The lines so far are valid.
    if (!signal.aborted && (error as NodeJS.ErrnoException).code !== 'ECONNRESET') throw error;
  } finally {
    letGo();
    stream.destroy();
  }
}

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
export class ContainerLogLines {
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
    if (isEnded(data)) return [closeLine(open)];
    this.hadPieces = true;
    return open.bytes > LIMITS.logLineBytes ? [closeLine(open)] : [];
  }

  /** Returns the unfinished lines, each with a line end. */
  end(): readonly Buffer[] {
    return [this.#open.stdout, this.#open.stderr].flatMap(open => {
      if (open.parts.length === 0) return [];
      open.parts.push(Buffer.from('\n'));
      return [closeLine(open)];
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

function closeLine(open: OpenLine): Buffer {
  const whole = open.parts.length === 1 ? (open.parts[0] as Buffer) : Buffer.concat(open.parts);
  open.parts = [];
  open.bytes = 0;
  return whole;
}
