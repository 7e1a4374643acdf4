import type { Readable } from 'node:stream';
import { onAbort } from '../../lib/linked-signal.ts';
import type { LogRequest } from '../driver.ts';
import { type Engine, statusOf } from './engine.ts';
import { FirstLines, LastLines, LogLines } from './log-lines.ts';
import { FrameSplitter, type StreamFrame } from './multiplex.ts';

/** Of the last lines, before they are read a second time instead. */
const MAX_KEPT_BYTES = 1024 * 1024;

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
  const lines = new LogLines();
  for await (const pieces of linesOf(engine, container, request, lines, signal)) yield Buffer.concat(pieces);
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
    const lines = new LogLines();
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
    // Too much to keep it for a reader that may be slow: it is read again, from where the last lines begin.
    const again = new LogLines();
    const skipped = new FirstLines(last.lines - count);
    for await (const pieces of linesOf(engine, container, { ...request, tail }, again, signal)) {
      const shown = Buffer.concat(skipped.without(pieces));
      if (shown.length > 0) yield shown;
    }
    if (!signal.aborted) yield* skipped.without(again.end());
    return;
  }
}

/** The log of a container, as lines or pieces of long ones; nothing when it is gone. */
async function* linesOf(
  engine: Engine,
  container: string,
  request: LogRequest,
  lines: LogLines,
  signal: AbortSignal,
): AsyncIterable<readonly Buffer[]> {
  const stream = await open(engine, container, request, request.tail);
  if (stream === null) return;
  for await (const frames of framesOf(stream, signal)) {
    const pieces = frames.flatMap(frame => lines.push(frame));
    if (pieces.length > 0) yield pieces;
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
