import type { IncomingMessage } from 'node:http';
import { onAbort } from '../../lib/linked-signal.ts';
import { OPENED } from '../../lib/opened-log.ts';
import type { LogRequest } from '../driver.ts';
import { type KubernetesApi, statusOf } from './cluster.ts';
import type { PodSandbox } from './pod-sandbox.ts';
import { MAIN_CONTAINER } from './pod-template.ts';

const NEWLINE = 0x0a;
const SPACE = 0x20;
/** Time within which the last lines of an instance reach the node's log file. */
const LAST_LINES_MS = 300;
/** Resolution of the API's `sinceTime`, which takes whole seconds. */
const SECOND_MS = 1000;

/**
 * Yields the lines of a pod's main container, as the node keeps them. A claimed pod yields only lines after
 * the claim; earlier lines belong to another instance. A removed pod has no lines. Some nodes answer only
 * with the first line, so that `OPENED` comes late.
 */
export async function* readLogs(
  cluster: KubernetesApi,
  path: string,
  sandbox: PodSandbox,
  { tail, sinceMs, untilMs = Number.POSITIVE_INFINITY, follow }: LogRequest,
  ended: (signal: AbortSignal) => Promise<unknown>,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  if (signal.aborted || (tail === 0 && !follow)) return;
  const fromMs = Math.max(sinceMs ?? 0, sandbox.claimedAtMs);
  const isTimed = fromMs > 0 || untilMs !== Number.POSITIVE_INFINITY;
  const query = {
    container: MAIN_CONTAINER,
    ...(follow && { follow }),
    ...(tail !== null && { tailLines: tail }),
    ...(isTimed && { timestamps: true }),
    ...(fromMs > 0 && {
      sinceTime: new Date(Math.floor(fromMs / SECOND_MS) * SECOND_MS).toISOString().replace(/\.\d+Z$/, 'Z'),
    }),
  };
  const over = new AbortController();
  const letGo = onAbort(signal, () => over.abort());
  let stream: IncomingMessage;
  try {
    stream = await cluster.stream('read a log', { path: `${path}/log`, query }, over.signal);
  } catch (error) {
    letGo();
    // The pod was removed, or its container has not started.
    if (signal.aborted || statusOf(error) === 404 || statusOf(error) === 400) return;
    throw error;
  }
  if (follow && sandbox.poolId !== null) {
    // The container of a pool's pod outlives the instance, so end the stream here.
    ended(over.signal).then(
      () => setTimeout(() => over.abort(), LAST_LINES_MS),
      () => undefined,
    );
  }
  try {
    yield OPENED;
    for await (const lines of wholeLines(stream)) {
      const wanted = isTimed ? withoutTimes(lines, fromMs, untilMs) : lines;
      if (wanted.length > 0) yield wanted;
      if (signal.aborted) return;
    }
  } catch (error) {
    // The reader gave up or the node closed the connection. The lines so far are valid.
    if (!over.signal.aborted && (error as NodeJS.ErrnoException).code !== 'ECONNRESET') throw error;
  } finally {
    letGo();
    over.abort();
    stream.destroy();
  }
}

/** Yields chunks that end at line ends. Adds a line end to the last line if it has none. */
async function* wholeLines(stream: IncomingMessage): AsyncIterable<Buffer> {
  let rest: Buffer[] = [];
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    const end = chunk.lastIndexOf(NEWLINE);
    if (end === -1) {
      rest.push(chunk);
      continue;
    }
    yield Buffer.concat([...rest, chunk.subarray(0, end + 1)]);
    rest = end + 1 === chunk.length ? [] : [chunk.subarray(end + 1)];
  }
  if (rest.length > 0) yield Buffer.concat([...rest, Buffer.from('\n')]);
}

/** Returns the lines at or after a time and before another, without their timestamps. */
function withoutTimes(lines: Buffer, fromMs: number, untilMs: number): Buffer {
  const kept: Buffer[] = [];
  for (let from = 0; from < lines.length; ) {
    const end = lines.indexOf(NEWLINE, from) + 1;
    const space = lines.indexOf(SPACE, from);
    const isTimed = space !== -1 && space < end;
    const atMs = isTimed ? Date.parse(lines.toString('latin1', from, space)) : Number.NaN;
    // A line without a timestamp continues a line that was too long.
    if (!(atMs < fromMs || atMs >= untilMs)) kept.push(lines.subarray(Number.isNaN(atMs) ? from : space + 1, end));
    from = end;
  }
  return Buffer.concat(kept);
}
