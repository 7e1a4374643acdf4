import { setTimeout as delay } from 'node:timers/promises';
import type { CallOptions, Connection } from './connection.ts';
import { Unavailable } from './failures.ts';
import { readLines } from './lines.ts';
import { LogPosition } from './log-position.ts';
import { retryAfterMs } from './retry.ts';
import { serverEvents } from './server-events.ts';

type LogOperation = 'agentLogs' | 'readFunctionLogs' | 'getJobLogs';

export interface FollowedLog<N extends LogOperation> {
  readonly name: N;
  readonly options: CallOptions<N>;
  /** True if each line begins with its instance id. Lines of different instances have no order. */
  readonly isOfInstances?: boolean;
  /** True if the service keeps the beginning of the log, so that a byte offset identifies a position. */
  readonly isWhole?: boolean;
}

interface Asked {
  readonly tail?: number;
  readonly since?: string;
  readonly follow?: boolean;
}

/**
 * Yields lines of a log until it ends. After a broken connection it resumes behind the last byte received.
 */
export function followLog<N extends LogOperation>(connection: Connection, log: FollowedLog<N>): AsyncGenerator<string> {
  return readLines(chunksOf(connection, log));
}

async function* chunksOf<N extends LogOperation>(
  connection: Connection,
  { name, options, isOfInstances = false, isWhole = false }: FollowedLog<N>,
): AsyncGenerator<Buffer> {
  const { tail, since, follow: _, ...rest } = (options.query ?? {}) as Asked;
  const position = new LogPosition(tail === undefined && since === undefined, isOfInstances);
  const { signal } = options;
  let query: object = { ...rest, tail, since, follow: true };
  for (let failures = 0; ; ) {
    try {
      if (position.hasYielded && !isWhole) {
        query = { ...rest, follow: true };
        const now = { ...options, query: rest, headers: { accept: 'text/plain' } } as CallOptions<N>;
        await position.find(await connection.stream(name, now));
      }
      const headers = { accept: 'text/event-stream, text/plain' };
      const answer = await connection.typedStream(name, { ...options, query, headers } as CallOptions<N>);
      position.begin();
      for await (const bytes of contentOf(answer)) {
        failures = 0;
        const fresh = position.advance(bytes);
        if (fresh.length > 0) yield fresh;
      }
      return;
    } catch (error) {
      signal?.throwIfAborted();
      failures += 1;
      const waitMs = position.hasBegun && failures <= connection.retries ? retryAfterMs(error, failures, true) : null;
      if (waitMs === null) throw error;
      await delay(waitMs, undefined, signal === undefined ? {} : { signal }).catch(() => signal?.throwIfAborted());
    }
  }
}

/** Yields the bytes of the log from an answer. Fails if the answer ends before the log does. */
async function* contentOf(answer: { readonly type: string; readonly chunks: AsyncIterable<Buffer> }) {
  if (!answer.type.startsWith('text/event-stream')) {
    yield* answer.chunks;
    return;
  }
  for await (const { type, data } of serverEvents(answer.chunks)) {
    if (type === 'end') return;
    if (type === 'message') yield Buffer.from(data, 'base64');
  }
  const cause = new Error('it ended before the log');
  throw new Unavailable(`the connection broke: ${cause.message}`, { cause });
}
