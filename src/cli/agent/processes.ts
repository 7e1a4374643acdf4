import { PassThrough } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { age } from '../../lib/age.ts';
import { parsePairs } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printJson, printTable } from '../shared/print.ts';
import { type CommandOptions, converse, passSize, toStreams } from './command.ts';
import { resolveAgent } from './records.ts';

interface ForOne extends ClientOptions {
  readonly namespace: string;
}

interface StartOptions extends ForOne, CommandOptions {
  readonly tag?: string;
  readonly user?: string;
  readonly stdin?: boolean;
  readonly json?: boolean;
}

/** A record of `GET /api/agent/{id}/processes`. */
interface ProcessRecord {
  readonly pid: number;
  readonly command: readonly string[];
  readonly tag: string | null;
  readonly tty: boolean;
  readonly started_at: string;
}

async function processesPath(client: Client, given: string, namespace: string): Promise<string> {
  return `/api/agent/${encodeURIComponent(await resolveAgent(client, given, namespace))}/processes`;
}

/** Starts a process that outlives this command, and prints its pid. */
export async function startInAgent(
  io: Io,
  given: string,
  command: readonly string[],
  { workdir, env, tag, user, stdin, json, ...options }: StartOptions,
): Promise<void> {
  const client = await Client.open(options, io);
  const body = {
    command,
    ...(workdir === undefined ? {} : { working_dir: workdir }),
    ...(env === undefined ? {} : { env: parsePairs(env, '--env') }),
    ...(tag === undefined ? {} : { tag }),
    ...(user === undefined ? {} : { user }),
    ...(stdin === true ? { stdin } : {}),
  };
  const path = await processesPath(client, given, options.namespace);
  const answer = await client.json('POST', path, { body: JSON.stringify(body) });
  if (json === true) printJson(io, answer);
  else io.out.write(`${answer.pid}\n`);
}

const COLUMNS = [
  { title: 'PID', text: ({ pid }: ProcessRecord) => String(pid) },
  { title: 'TAG', text: ({ tag }: ProcessRecord) => tag ?? '-', isFlexible: true },
  { title: 'AGE', text: ({ started_at }: ProcessRecord) => age(started_at) },
  { title: 'COMMAND', text: ({ command }: ProcessRecord) => command.join(' '), isFlexible: true },
];

/** Prints the running processes of an agent. */
export async function listProcesses(
  io: Io,
  given: string,
  options: ForOne & { readonly json?: boolean },
): Promise<void> {
  const client = await Client.open(options, io);
  const answer = await client.json('GET', await processesPath(client, given, options.namespace));
  if (options.json === true) printJson(io, answer);
  else printTable(io, COLUMNS, answer.processes as readonly ProcessRecord[]);
}

/** Signals a process of an agent. */
export async function killProcess(
  io: Io,
  given: string,
  process: string,
  options: ForOne & { readonly signal: string },
): Promise<void> {
  const client = await Client.open(options, io);
  const path = `${await processesPath(client, given, options.namespace)}/${encodeURIComponent(process)}/signal`;
  const name = options.signal.toUpperCase();
  await client.json('POST', path, {
    body: JSON.stringify({ signal: name.startsWith('SIG') ? name : `SIG${name}` }),
  });
}

/** The key that leaves a process with a terminal: Ctrl-]. */
const LEAVE = 0x1d;
const RECONNECT_TRIES = 60;
const RECONNECT_MS = 1000;

/**
 * Prints the output of a process until it ends, and returns its exit code. Connects again when the connection
 * breaks, for example because the service restarts; output in between is lost.
 */
export async function attachToProcess(
  io: Io,
  given: string,
  process: string,
  options: ForOne & { readonly stdin?: boolean },
): Promise<number> {
  const client = await Client.open(options, io);
  const path = await processesPath(client, given, options.namespace);
  const { processes } = await client.json('GET', path);
  const found = (processes as readonly ProcessRecord[]).find(({ pid, tag }) => `${pid}` === process || tag === process);
  const terminal = found?.tty === true ? io.terminal : undefined;
  const attach = `${path}/${encodeURIComponent(found === undefined ? process : String(found.pid))}/attach`;
  const isForwarding = options.stdin === true || terminal !== undefined;
  terminal?.setRaw(true);
  try {
    for (let tries = 0; ; tries++) {
      const code = await listenOnce({ io, client, attach, isForwarding, hasKeys: terminal !== undefined }, tries > 0);
      if (code !== null) return code;
      if (tries === 0) io.err.write('The connection broke; connecting again.\n');
      if (tries === RECONNECT_TRIES) throw new CliError('The service cannot be reached any more.', EXIT.unreachable);
      await delay(RECONNECT_MS, undefined, { signal: io.signal });
    }
  } finally {
    terminal?.setRaw(false);
    io.stdin.destroy();
  }
}

interface Listening {
  readonly io: Io;
  readonly client: Client;
  readonly attach: string;
  readonly isForwarding: boolean;
  readonly hasKeys: boolean;
}

/** Listens over one connection. Returns null when the connection broke. */
async function listenOnce(
  { io, client, attach, isForwarding, hasKeys }: Listening,
  isAgain: boolean,
): Promise<number | null> {
  const input = new PassThrough();
  let hasLeft = false;
  const leave = (chunk: Buffer) => {
    if (hasKeys && chunk.includes(LEAVE)) hasLeft = true;
    if (hasLeft) socket?.close(1000);
  };
  let socket: Awaited<ReturnType<Client['webSocket']>> | null = null;
  let stopResizing: (() => void) | undefined;
  try {
    socket = await client.webSocket(attach);
    if (isForwarding) io.stdin.on('data', leave).pipe(input);
    if (hasKeys && io.terminal !== undefined) stopResizing = passSize(io.terminal, socket);
    return await converse({ ...io, stdin: input }, socket, false, toStreams(io));
  } catch (error) {
    if (hasLeft || io.signal.aborted) return EXIT.ok;
    if (error instanceof CliError && error.exitCode === EXIT.unreachable && (isAgain || socket !== null)) return null;
    throw error;
  } finally {
    stopResizing?.();
    io.stdin.off('data', leave).unpipe(input);
    input.destroy();
  }
}
