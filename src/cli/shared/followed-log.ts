import type { IncomingMessage } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { LogPosition } from '../../../clients/typescript/src/log-position.ts';
import { serverEvents } from '../../../clients/typescript/src/server-events.ts';
import type { Client } from './client.ts';
import { CliError, EXIT } from './exit.ts';
import type { Io } from './io.ts';
import { printWarning } from './print.ts';

const RETRIES = 8;
const LONGEST_PAUSE_MS = 2000;
const SHORTENED = 'the log was shortened meanwhile: lines may be missing here';

export interface FollowedLog {
  /** The path without its query. */
  readonly path: string;
  readonly query: URLSearchParams;
  /** The command that continues this log, for errors. */
  readonly command?: string;
  /** True if each line begins with its instance; only lines of the same instance have an order. */
  readonly isOfInstances?: boolean;
  /** True if the log keeps its beginning, so that bytes can be counted. */
  readonly isWhole?: boolean;
}

/** Yields a log until its end. After a broken connection, continues after the last byte that was yielded. */
export async function* followLog(io: Io, client: Client, log: FollowedLog): AsyncGenerator<Buffer> {
  const isWholeAsked = !log.query.has('tail') && !log.query.has('since');
  const position = new LogPosition(isWholeAsked, log.isOfInstances === true);
  let query = new URLSearchParams({ ...Object.fromEntries(log.query), follow: 'true' });
  for (let failures = 0; ; ) {
    try {
      if (position.hasYielded && log.isWhole !== true) {
        query = withoutTail(query);
        if (!(await position.find(await wholeLog(client, log)))) printWarning(io, SHORTENED);
      }
      const headers = { accept: 'text/event-stream, text/plain' };
      const answer = await client.stream('GET', `${log.path}?${query}`, { timeoutMs: null, headers });
      position.begin();
      for await (const bytes of contentOf(answer)) {
        failures = 0;
        const fresh = position.advance(bytes);
        if (fresh.length > 0) yield fresh;
      }
      return;
    } catch (error) {
      if (io.signal.aborted) return;
      if (!position.hasBegun || !isPassing(error)) throw error;
      failures += 1;
      if (failures > RETRIES) {
        const next = log.command === undefined ? '' : ` Go on with: ${log.command}`;
        throw new CliError(`The connection broke (${(error as Error).message}).${next}`, EXIT.unreachable);
      }
      await delay(Math.min(LONGEST_PAUSE_MS, 50 * 2 ** failures), undefined, { signal: io.signal }).catch(() => {});
      if (io.signal.aborted) return;
    }
  }
}

/** Returns true for a temporary error: a proxy that gave up, or a service that restarts. */
function isPassing(error: unknown): boolean {
  if (!(error instanceof CliError)) return true;
  return error.status === null ? error.exitCode === EXIT.unreachable : [429, 502, 503, 504].includes(error.status);
}

function withoutTail(query: URLSearchParams): URLSearchParams {
  const whole = new URLSearchParams(query);
  whole.delete('tail');
  whole.delete('since');
  return whole;
}

/** Yields the content of an answer. Fails when the answer ends before the log does. */
async function* contentOf(answer: IncomingMessage): AsyncGenerator<Buffer> {
  if (!answer.headers['content-type']?.startsWith('text/event-stream')) {
    yield* answer as AsyncIterable<Buffer>;
    return;
  }
  for await (const { type, data } of serverEvents(answer)) {
    if (type === 'end') return;
    if (type === 'message') yield Buffer.from(data, 'base64');
  }
  throw new Error('it ended before the log');
}

/** Returns the current log of the requested instance. */
async function wholeLog(client: Client, { path, query }: FollowedLog): Promise<AsyncIterable<Buffer>> {
  const instance = query.get('instance');
  const asked = new URLSearchParams(instance === null ? {} : { instance });
  return await client.stream('GET', `${path}?${asked}`, { headers: { accept: 'text/plain' } });
}
