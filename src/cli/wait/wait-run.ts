import { META_CODES } from '../../core/codes.ts';
import { findAgent } from '../agent/records.ts';
import { Changes, RELOOK_MS } from '../deploy/changes.ts';
import { askMeta, metaFailure, metaPath } from '../function/meta-call.ts';
import { functionPath, functionUrl, parseNamedVersion } from '../function/records.ts';
import { type JobRecord, jobPath } from '../job/records.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { oneOf, printable } from '../shared/print.ts';
import { parseDurationMs } from '../shared/units.ts';
import { WAITS, type WaitKind } from './wait-names.ts';

interface WaitOptions extends ClientOptions {
  readonly namespace: string;
  readonly for?: string;
  readonly timeout: string;
  readonly quiet?: boolean;
}

/** The state of a resource at a poll. */
interface Found {
  /** All states that apply: a job that has succeeded is also over. */
  readonly states: readonly string[];
  /** True if the state stays until a user acts. */
  readonly isFinal: boolean;
  readonly reason?: string;
}

/** The exit code of `timeout(1)` for a timeout. */
const EXIT_TIMED_OUT = 124;
/** States that a user may still cause. */
const AFTER_THE_END = new Set(['stopping', 'deleted']);
const OVER = ['SUCCEEDED', 'FAILED', 'STOPPED'];

/** Waits for a state. Returns the exit code. */
export async function waitFor(io: Io, kind: WaitKind, name: string, options: WaitOptions): Promise<number> {
  const { states, events } = WAITS[kind];
  const wanted = (options.for ?? states[0]).toLowerCase();
  if (!states.some(state => state === wanted))
    throw usageError(`--for must be ${oneOf(states)} for ${kind}, not ${JSON.stringify(options.for)}.`);
  const timeoutMs = parseDurationMs(options.timeout, '--timeout');
  const client = await Client.open(options, io);
  const readStates = { agent: lookAtAgent, function: lookAtFunction, job: lookAtJob }[kind];
  using changes = await Changes.follow(io, client, events);
  const endMs = performance.now() + timeoutMs;
  for (;;) {
    const { states: now, isFinal, reason } = await readStates(client, name, options);
    if (now.includes(wanted)) {
      if (options.quiet !== true) io.out.write(`${now[0]}\n`);
      return EXIT.ok;
    }
    const is =
      now[0] === 'deleted'
        ? `there is no ${kind} ${name}`
        : printable(`${kind} ${name} is ${now[0]}${reason ? `: ${reason}` : ''}`);
    if (isFinal && !AFTER_THE_END.has(wanted))
      throw new CliError(`It cannot become ${wanted} by itself any more: ${is}.`);
    const leftMs = endMs - performance.now();
    if (leftMs <= 0) throw new CliError(`Not ${wanted} after ${options.timeout}: ${is}.`, EXIT_TIMED_OUT);
    await changes.next(Math.min(RELOOK_MS, leftMs));
    if (io.signal.aborted) throw new CliError('Interrupted.');
  }
}

async function lookAtAgent(client: Client, name: string, { namespace, for: wanted }: WaitOptions): Promise<Found> {
  const agent = await findAgent(client, name, namespace);
  if (agent === null) return { states: ['deleted'], isFinal: false };
  const { status, status_reason: reason = '', restart_at: restartAt, load_error: loadError } = agent;
  // Every call fails with this error until the agent is restarted or replaced.
  if (status === 'RUNNING' && loadError)
    return { states: ['running (code not loaded)'], isFinal: wanted?.toLowerCase() !== 'failed', reason: loadError };
  // An agent that its policy restarts has failed only for now.
  return { states: [status.toLowerCase()], isFinal: status === 'FAILED' && !restartAt, reason };
}

async function lookAtFunction(client: Client, given: string): Promise<Found> {
  const { name, version } = parseNamedVersion(given);
  const answer = await askMeta(client, 'GET', metaPath(functionUrl(name), { versionNumber: version }));
  if (answer.code === META_CODES.notFound.code) return { states: ['deleted'], isFinal: false };
  if (answer.code !== 0) throw metaFailure(answer);
  const { functionVersionUrn: urn } = answer.function as { functionVersionUrn: string };
  const { instances } = await client.json('GET', functionPath(urn, 'instances'));
  const all = instances as readonly { readonly status: string }[];
  const state = all.some(({ status }) => status === 'ready') ? 'ready' : all.length === 0 ? 'idle' : 'starting';
  return { states: [state, 'registered'], isFinal: false };
}

async function lookAtJob(client: Client, id: string): Promise<Found> {
  const { status, message } = (await client.json('GET', jobPath(id))) as unknown as JobRecord;
  const isOver = OVER.includes(status);
  return { states: [status.toLowerCase(), ...(isOver ? ['over'] : [])], isFinal: isOver, reason: message };
}
