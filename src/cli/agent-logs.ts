import type { IncomingMessage } from 'node:http';
import { createInterface } from 'node:readline';
import type { Style } from '../lib/ansi.ts';
import { resolveAgent } from './agent-records.ts';
import { Client, type ClientOptions } from './client.ts';
import { CliError, EXIT } from './exit.ts';
import { type Io, pump } from './io.ts';
import { coloured } from './print.ts';

interface LogOptions extends ClientOptions {
  readonly namespace: string;
  readonly follow?: boolean;
  readonly tail?: string;
  readonly since?: string;
  readonly previous?: string | boolean;
}

const COLOURS: readonly Style[] = ['cyan', 'magenta', 'green', 'blue', 'yellow'];

export async function printLogs(io: Io, given: readonly string[], options: LogOptions): Promise<void> {
  const client = await Client.open(options, io);
  const query = new URLSearchParams();
  if (options.previous !== undefined) query.set('previous', options.previous === true ? '1' : String(options.previous));
  if (options.tail !== undefined) query.set('tail', options.tail);
  if (options.since !== undefined) query.set('since', options.since);
  if (options.follow === true) query.set('follow', 'true');
  const names = [...new Set(given)];
  // All are there, or nothing is printed.
  const ids = await Promise.all(names.map(name => resolveAgent(client, name, options.namespace)));
  const open = (id: string | undefined) =>
    client.stream('GET', `/api/agent/${encodeURIComponent(`${id}`)}/logs?${query}`);
  try {
    if (names.length === 1) {
      await pump(await open(ids[0]), io.out, io.signal);
      return;
    }
    const width = Math.max(...names.map(name => name.length));
    const prefixOf = (name: string, at: number) =>
      coloured(io, io.out, COLOURS[at % COLOURS.length] ?? 'cyan', `${name.padEnd(width)} | `);
    if (options.follow === true) {
      await Promise.all(names.map(async (name, at) => printLines(io, await open(ids[at]), prefixOf(name, at))));
    } else for (const [at, name] of names.entries()) await printLines(io, await open(ids[at]), prefixOf(name, at));
  } catch (error) {
    if (io.signal.aborted) return;
    if (error instanceof CliError) throw error;
    throw new CliError(`The connection broke (${(error as Error).message}).`, EXIT.unreachable);
  }
}

/** Whole lines, each in one piece: those of others come in between. */
async function printLines(io: Io, answer: IncomingMessage, prefix: string): Promise<void> {
  const lines = createInterface({ input: answer, crlfDelay: Number.POSITIVE_INFINITY });
  let failure: Error | null = null;
  answer.once('error', error => {
    failure = error;
    lines.close();
  });
  for await (const line of lines) {
    if (!io.out.write(`${prefix}${line}\n`)) await io.out.drained();
  }
  if (failure !== null) throw failure;
}
