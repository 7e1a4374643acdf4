import { setTimeout as delay } from 'node:timers/promises';
import { inWords } from '../../explain/words.ts';
import type { Client } from '../shared/client.ts';
import { CliError, EXIT } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { coloured, printable, printWarning } from '../shared/print.ts';
import { type Call, targetOf } from './records.ts';

export interface FollowOptions {
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** The service writes records twice a second. */
const POLL_MS = 500;
const RETRY_MS = 1000;
/** Calls that one request asks for. */
const PAGE = 100;
const TARGET_CHARS = 24;
const TIME_CHARS = 8;

/** Runs `work` with a signal that Ctrl-C and SIGTERM abort too, and returns normally when it is aborted. */
export async function untilInterrupted(io: Io, work: (io: Io) => Promise<void>): Promise<void> {
  const over = new AbortController();
  const end = () => over.abort();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, end);
  io.signal.addEventListener('abort', end, { once: true });
  try {
    await work({ ...io, signal: over.signal });
  } catch (error) {
    if (!over.signal.aborted) throw error;
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, end);
    io.signal.removeEventListener('abort', end);
  }
}

/**
 * Prints `earlier`, oldest first, and then calls that are recorded after `position`. Returns when the signal
 * of `io` aborts. Waits for a service that restarts, and continues where it was.
 */
export async function followCalls(
  io: Io,
  client: Client,
  filter: URLSearchParams,
  { earlier, position, ...options }: FollowOptions & { readonly earlier: readonly Call[]; readonly position: string },
): Promise<void> {
  const printed = new Set(earlier.map(({ id }) => id));
  for (const call of [...earlier].reverse()) await print(io, call, options);
  let at = position;
  let isWaiting = false;
  while (!io.signal.aborted) {
    const page = await readPage(client, filter, at).catch((error: unknown) => {
      if (io.signal.aborted || !isPassing(error)) throw error;
      if (!isWaiting) printWarning(io, `the service does not answer; waiting for it (${(error as Error).message})`);
      return null;
    });
    isWaiting = page === null;
    // The list of earlier calls may have been read later than the position.
    for (const call of page?.calls ?? []) if (!printed.delete(call.id)) await print(io, call, options);
    const isNewest = page === null || page.position === at;
    at = page?.position ?? at;
    if (isNewest) await delay(isWaiting ? RETRY_MS : POLL_MS, undefined, { signal: io.signal }).catch(() => {});
  }
}

/** Returns the position behind the newest record. */
export async function newestPosition(client: Client, filter: URLSearchParams): Promise<string> {
  return (await readPage(client, filter, 'now')).position;
}

async function readPage(
  client: Client,
  filter: URLSearchParams,
  position: string,
): Promise<{ readonly calls: readonly Call[]; readonly position: string }> {
  const query = new URLSearchParams({ ...Object.fromEntries(filter), limit: String(PAGE), follow: position });
  const { calls, next_cursor: next } = await client.json('GET', `/api/calls?${query}`);
  return { calls: calls as readonly Call[], position: String(next) };
}

/** Returns true for the error of a service that restarts, or of a proxy before it. */
function isPassing(error: unknown): boolean {
  if (!(error instanceof CliError)) return false;
  return error.status === null ? error.exitCode === EXIT.unreachable : [429, 502, 503, 504].includes(error.status);
}

async function print(io: Io, call: Call, { json = false, quiet = false }: FollowOptions): Promise<void> {
  const text = json ? JSON.stringify(call) : quiet ? call.id : lineOf(io, call);
  if (!io.out.write(`${text}\n`)) await io.out.drained();
}

function lineOf(io: Io, call: Call): string {
  const end = new Date(Date.parse(call.start_time) + call.duration_ms).toISOString().slice(11, 23);
  const outcome = call.error_code ?? call.outcome;
  const facts = [
    ...[end, call.id, printable(targetOf(call)).padEnd(TARGET_CHARS), inWords(call.duration_ms).padStart(TIME_CHARS)],
    call.outcome === 'error' ? coloured(io, io.out, 'red', printable(outcome)) : outcome,
    printable((call.error ?? '').split('\n', 1)[0] ?? ''),
  ];
  return facts.join('  ').trimEnd();
}
