import type { Readable } from 'node:stream';
import { onAbort } from '../../lib/linked-signal.ts';
import type { LogRequest } from '../driver.ts';
import { type Engine, statusOf } from './engine.ts';
import { FrameSplitter, type StreamFrame } from './multiplex.ts';

const NEWLINE = 0x0a;

/**
 * The lines of a container's log. The daemon keeps a line that is longer than 16 KiB in pieces, and counts pieces when it is asked for
 * the last ones; they are put together here. A container that is gone has no lines.
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
  const stream = await open(engine, container, request, request.tail);
  if (stream === null) return;
  const lines = new LogLines();
  for await (const frames of framesOf(stream, signal)) {
    const whole = Buffer.concat(frames.flatMap(frame => lines.push(frame)));
    if (whole.length > 0) yield whole;
  }
  if (!signal.aborted) yield* lines.end();
}

/** The last `count` lines. One piece more tells where the first of them begins; only when there is a piece that is no whole line all is read. */
async function* readTail(
  engine: Engine,
  container: string,
  count: number,
  request: LogRequest,
  signal: AbortSignal,
): AsyncIterable<Buffer> {
  for (const tail of [count + 1, null]) {
    const stream = await open(engine, container, request, tail);
    if (stream === null) return;
    const lines = new LogLines();
    const kept: Buffer[] = [];
    for await (const frames of framesOf(stream, signal)) {
      for (const frame of frames) kept.push(...lines.push(frame));
      if (kept.length > count) kept.splice(0, kept.length - count);
    }
    if (lines.hadPieces && tail !== null) continue;
    kept.push(...lines.end());
    const whole = Buffer.concat(kept.slice(-count));
    if (whole.length > 0 && !signal.aborted) yield whole;
    return;
  }
}

/** Null when the container is gone. */
async function open(
  engine: Engine,
  container: string,
  { follow, sinceMs }: LogRequest,
  tail: number | null,
): Promise<Readable | null> {
  const options = {
    stdout: true,
    stderr: true,
    follow,
    tail: tail === null ? 'all' : String(tail),
    ...(sinceMs === null ? {} : { since: (sinceMs / 1000).toFixed(3) }),
  };
  try {
    // Only its answer to a request that follows is a stream for the library; the wire knows no difference.
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
    // Given up by its reader, or the daemon has gone: what was read was right.
    if (!signal.aborted && (error as NodeJS.ErrnoException).code !== 'ECONNRESET') throw error;
  } finally {
    letGo();
    stream.destroy();
  }
}

/** Puts the pieces of each output's lines together. */
class LogLines {
  readonly #open: Record<'stdout' | 'stderr', Buffer[]> = { stdout: [], stderr: [] };
  /** Whether a piece came that was no whole line. */
  hadPieces = false;

  /** The line that the piece completes, when it does. */
  push({ isStderr, data }: StreamFrame): readonly Buffer[] {
    const open = this.#open[isStderr ? 'stderr' : 'stdout'];
    if (data.at(-1) !== NEWLINE) {
      this.hadPieces = true;
      open.push(data);
      return [];
    }
    return [Buffer.concat([...open.splice(0), data])];
  }

  /** Lines that never ended, ended. */
  end(): readonly Buffer[] {
    return [this.#open.stdout, this.#open.stderr].flatMap(open =>
      open.length === 0 ? [] : [Buffer.concat([...open.splice(0), Buffer.from('\n')])],
    );
  }
}
