import { parsePairs } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printJson } from '../shared/print.ts';
import { parseDurationMs } from '../shared/units.ts';
import { type Agent, resolveAgent } from './records.ts';

/** Options of a create about labels and the end. */
export interface LifetimeOptions {
  readonly label?: readonly string[];
  readonly ttl?: string;
  readonly idle?: string;
  readonly onExpiry?: string;
  readonly durable?: boolean;
  readonly sleepAfter?: string;
  readonly files?: string;
}

/** Returns the fields of a create that the options set. */
export function lifetimeFields({
  label,
  ttl,
  idle,
  onExpiry,
  durable,
  sleepAfter,
  files,
}: LifetimeOptions): Record<string, unknown> {
  if (onExpiry !== undefined && onExpiry !== 'delete' && onExpiry !== 'pause')
    throw usageError(`--on-expiry must be delete or pause, not ${JSON.stringify(onExpiry)}.`);
  if (sleepAfter !== undefined && durable !== true) throw usageError('--sleep-after needs --durable.');
  if (files !== undefined && durable !== true) throw usageError('--files needs --durable.');
  return {
    ...(label === undefined ? {} : { labels: parsePairs(label, '--label') }),
    ...(ttl === undefined ? {} : { ttl_seconds: parseDurationMs(ttl, '--ttl') / 1000 }),
    ...(idle === undefined ? {} : { idle_seconds: parseDurationMs(idle, '--idle') / 1000 }),
    ...(onExpiry === undefined ? {} : { on_expiry: onExpiry }),
    ...(durable === true && { durable: durableFields(sleepAfter, files) }),
  };
}

function durableFields(sleepAfter: string | undefined, files: string | undefined): true | Record<string, unknown> {
  if (sleepAfter === undefined && files === undefined) return true;
  return {
    ...(sleepAfter !== undefined && sleepFields(sleepAfter)),
    ...(files !== undefined && { files: filesFields(files) }),
  };
}

export function sleepFields(time: string): Record<string, unknown> {
  return { sleep_after_seconds: time === '0' ? 0 : parseDurationMs(time, '--sleep-after') / 1000 };
}

/** Reads `PATH` or `PATH:MB`. */
function filesFields(given: string): Record<string, unknown> {
  const [, path, megabytes] = /^(\/[^:]*)(?::(\d+))?$/.exec(given) ?? [];
  if (path === undefined)
    throw usageError(`--files must be an absolute path, or PATH:MB, not ${JSON.stringify(given)}.`);
  return { path, ...(megabytes !== undefined && { max_mb: Number(megabytes) }) };
}

interface ForAgents extends ClientOptions {
  readonly namespace: string;
  readonly json?: boolean;
}

/** Runs the action on each agent, in the order of the arguments. One failure does not stop the others. */
export async function changeAgents(
  io: Io,
  action: 'pause' | 'resume' | 'sleep' | 'wake',
  agents: readonly string[],
  options: ForAgents,
  { query = '', ...bounds }: { readonly query?: string; readonly timeoutMs?: null } = {},
): Promise<void> {
  const client = await Client.open(options, io);
  const failures: CliError[] = [];
  for (const given of agents) {
    try {
      const id = await resolveAgent(client, given, options.namespace);
      const answer = await client.json('POST', `/api/agent/${encodeURIComponent(id)}/${action}${query}`, bounds);
      if (options.json === true) printJson(io, answer);
      else io.out.write(`${id}\n`);
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      failures.push(error);
    }
  }
  const [first] = failures;
  if (first !== undefined) throw new CliError(failures.map(failure => failure.message).join('\n'), first.exitCode);
}

/** Puts each agent to sleep. Without options an agent in use is a failure. */
export async function putToSleep(
  io: Io,
  agents: readonly string[],
  { wait, force, ...options }: ForAgents & { readonly wait?: string; readonly force?: boolean },
): Promise<void> {
  const query = new URLSearchParams();
  if (wait !== undefined) query.set('wait', String(parseDurationMs(wait, '--wait') / 1000));
  if (force === true) query.set('force', 'true');
  const bounds = wait === undefined ? {} : { timeoutMs: null };
  await changeAgents(io, 'sleep', agents, options, { ...bounds, query: query.size === 0 ? '' : `?${query}` });
}

/** Sets the time to live of an agent, from now, and prints its end. `none`: the agent has no end. */
export async function setTtl(io: Io, given: string, ttl: string, options: ForAgents): Promise<void> {
  const ttl_seconds = ttl === 'none' ? 0 : parseDurationMs(ttl, 'The time to live') / 1000;
  const client = await Client.open(options, io);
  const id = await resolveAgent(client, given, options.namespace);
  const body = JSON.stringify({ ttl_seconds });
  const answer = await client.json('PUT', `/api/agent/${encodeURIComponent(id)}/ttl`, { body });
  if (options.json === true) printJson(io, answer);
  else io.out.write(`${(answer.instance as Agent).expires_at ?? 'none'}\n`);
}
