import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { agentArguments } from '../../explain/agent.ts';
import type { Style } from '../../lib/ansi.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT } from '../shared/exit.ts';
import { followLog } from '../shared/followed-log.ts';
import { type Io, pump } from '../shared/io.ts';
import { coloured } from '../shared/print.ts';
import { type Agent, findAgent, resolveAgent } from './records.ts';

interface LogOptions extends ClientOptions {
  readonly namespace: string;
  readonly follow?: boolean;
  readonly tail?: string;
  readonly since?: string;
  readonly previous?: string | boolean;
}

/** Longest time for which a redeployed agent's name may be free. */
const GONE_MS = 10_000;
const LOOK_MS = 250;
const COLOURS: readonly Style[] = ['cyan', 'magenta', 'green', 'blue', 'yellow'];

/** Prints the logs of one or several agents: `rookery agent logs`. */
export async function printLogs(io: Io, given: readonly string[], options: LogOptions): Promise<void> {
  const client = await Client.open(options, io);
  const query = new URLSearchParams();
  if (options.previous !== undefined) query.set('previous', options.previous === true ? '1' : String(options.previous));
  const names = [...new Set(given)];
  const { namespace, tail } = await linesOrNamespace(client, names, options);
  if (tail !== undefined) query.set('tail', tail);
  if (options.since !== undefined) query.set('since', options.since);
  // All agents must exist before anything is printed.
  const ids = await Promise.all(names.map(name => resolveAgent(client, name, namespace)));
  const isFollowed = options.follow === true;
  const open = async (at: number): Promise<AsyncIterable<Buffer>> => {
    const [id = '', name = ''] = [ids[at], names[at]];
    if (isFollowed && options.previous === undefined) {
      return runsOf(io, client, { id, name, namespace, query });
    }
    const followed = isFollowed ? '&follow=true' : '';
    return await client.stream('GET', `/api/agent/${encodeURIComponent(id)}/logs?${query}${followed}`);
  };
  try {
    if (names.length === 1) {
      await pump(await open(0), io.out, io.signal);
      return;
    }
    const width = Math.max(...names.map(name => name.length));
    const prefixOf = (name: string, at: number) =>
      coloured(io, io.out, COLOURS[at % COLOURS.length] ?? 'cyan', `${name.padEnd(width)} | `);
    if (isFollowed) {
      await Promise.all(names.map(async (name, at) => printLines(io, await open(at), prefixOf(name, at))));
    } else for (const [at, name] of names.entries()) await printLines(io, await open(at), prefixOf(name, at));
  } catch (error) {
    if (io.signal.aborted) return;
    if (error instanceof CliError) throw error;
    throw new CliError(`The connection broke (${(error as Error).message}).`, EXIT.unreachable);
  }
}

/** Reads `-n 20` as 20 lines, as `tail` does, unless a namespace `20` has one of the agents. */
async function linesOrNamespace(
  client: Client,
  names: readonly string[],
  { namespace, tail }: LogOptions,
): Promise<Pick<LogOptions, 'namespace' | 'tail'>> {
  if (tail !== undefined || !/^\d{1,9}$/.test(namespace)) return { namespace, ...(tail !== undefined && { tail }) };
  const found = await Promise.all(names.map(name => findAgent(client, name, namespace)));
  if (found.some(agent => agent?.namespace === namespace)) return { namespace };
  return { namespace: 'default', tail: namespace };
}

interface Runs {
  readonly id: string;
  /** The name or id from the command line. */
  readonly name: string;
  readonly namespace: string;
  readonly query: URLSearchParams;
}

/** Yields the log of each run. Continues after a restart, and with a new agent of the same name. */
async function* runsOf(io: Io, client: Client, { id, name, namespace, query }: Runs): AsyncGenerator<Buffer> {
  const command = `rookery agent logs -f ${agentArguments(name, namespace)}`;
  let run = await findAgent(client, id, namespace);
  for (let asked = query; ; asked = new URLSearchParams()) {
    const path = `/api/agent/${encodeURIComponent(run?.instance_id ?? id)}/logs`;
    yield* followLog(io, client, { path, query: asked, command });
    if (run === null || io.signal.aborted) return;
    run = await nextRun(io, client, run, name, namespace);
    if (run === null) return;
    io.err.write(`${coloured(io, io.err, 'grey', `${name} has started again`)}\n`);
  }
}

/** Returns null when the agent has ended, or was removed and no other agent soon takes its name. */
async function nextRun(io: Io, client: Client, last: Agent, name: string, namespace: string): Promise<Agent | null> {
  for (let missedMs = 0; missedMs <= GONE_MS && !io.signal.aborted; ) {
    const agent = await findAgent(client, name, namespace);
    const isSame = agent?.instance_id === last.instance_id && agent.restarts === last.restarts;
    if (agent === null || (isSame && agent.status === 'RUNNING')) missedMs += LOOK_MS;
    else if (isSame && agent.status === 'FAILED' && !agent.restart_at) return null;
    else if (!isSame && agent.status !== 'CREATING') return agent;
    if (agent === null && name === last.instance_id) return null;
    await delay(LOOK_MS, undefined, { signal: io.signal }).catch(() => undefined);
  }
  return null;
}

/** Prints whole lines, because lines of other agents appear between them. */
async function printLines(io: Io, log: AsyncIterable<Buffer>, prefix: string): Promise<void> {
  const answer = Readable.from(log);
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
