import { Writable } from 'node:stream';
import type { WebSocket } from 'ws';
import { receive, send, sendBinary } from '../../lib/socket-stream.ts';
import { parsePairs } from '../deploy/file.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, EXIT } from '../shared/exit.ts';
import type { Io, Output, Terminal } from '../shared/io.ts';
import { resolveAgent } from './records.ts';

const STDERR = 2;
const NORMAL = 1000;
const STDIN_END = JSON.stringify({ type: 'stdin-end' });

export interface CommandOptions {
  readonly workdir?: string;
  readonly env?: readonly string[];
}

/**
 * Returns the query of the WebSocket that runs a command. Without arguments, the command is a login shell.
 */
export function commandQuery(command: readonly string[], options: CommandOptions): URLSearchParams {
  const query = new URLSearchParams();
  if (command.length > 0) query.set('command', JSON.stringify(command));
  if (options.workdir !== undefined) query.set('working_dir', options.workdir);
  for (const [name, value] of Object.entries(parsePairs(options.env ?? [], '--env')))
    query.append('env', `${name}=${value}`);
  return query;
}

/** Receives one piece of output, byte for byte. Resolves when the next piece may follow. */
export type OutputSink = (chunk: Buffer, isStderr: boolean) => Promise<void>;

/** Writes output to the streams of this process. */
export function toStreams(io: Io): OutputSink {
  return (chunk, isStderr) => write(isStderr ? io.err : io.out, chunk);
}

/**
 * Sends stdin to a command while receiving its output, and returns its exit code. Fails with `CliError` when
 * the connection breaks before the command has ended.
 */
export async function converse(io: Io, socket: WebSocket, hasTerminal: boolean, sink: OutputSink): Promise<number> {
  let returncode: number | undefined;
  const output = new Writable({
    write(chunk: Buffer, _encoding, done) {
      // Without a terminal, the first byte names the stream.
      const isStderr = !hasTerminal && chunk[0] === STDERR;
      sink(hasTerminal ? chunk : chunk.subarray(1), isStderr).then(() => done(), done);
    },
  });
  // A reader that closes its pipe is not an error.
  output.on('error', () => socket.terminate());
  const written = new Promise(resolve => output.once('close', resolve));
  const closed = new Promise<{ code: number; reason: string }>(resolve =>
    socket.once('close', (code: number, reason: Buffer) => resolve({ code, reason: reason.toString() })),
  );
  receive(socket, output, text => {
    const message = JSON.parse(text) as { type?: string; returncode?: number };
    if (message.type === 'exit') returncode = message.returncode;
  });
  sendBinary(socket, io.stdin)
    .then(() => send(socket, STDIN_END))
    // The socket has closed; its close code and reason say why.
    .catch(() => undefined);
  const { code, reason } = await closed;
  output.end();
  await written;
  if (returncode !== undefined) return returncode & 0xff;
  if (io.signal.aborted) return EXIT.ok;
  throw new CliError(
    `The connection broke${reason === '' ? ` (code ${code})` : `: ${reason}`}.`,
    code === NORMAL ? EXIT.failure : EXIT.unreachable,
  );
}

async function write(output: Output, chunk: Buffer): Promise<void> {
  if (!output.write(chunk)) await output.drained();
}

interface ShellOptions extends ClientOptions, CommandOptions {
  readonly namespace: string;
  readonly tty: boolean;
}

/**
 * Runs a command, or a login shell, in the sandbox with this terminal or with pipes. Returns the exit code.
 */
export async function shellInAgent(
  io: Io,
  given: string,
  command: readonly string[],
  options: ShellOptions,
): Promise<number> {
  const terminal = options.tty ? io.terminal : undefined;
  const client = await Client.open(options, io);
  const id = await resolveAgent(client, given, options.namespace);
  const query = commandQuery(command, options);
  if (terminal) {
    const { columns, rows } = terminal.size();
    query.set('tty', 'true');
    query.set('cols', String(columns));
    query.set('rows', String(rows));
    const term = io.environment.TERM;
    if (term) query.append('env', `TERM=${term}`);
    const hasPrompt = query.getAll('env').some(pair => pair.startsWith('PROMPT_COMMAND='));
    if (command.length === 0 && !hasPrompt) query.append('env', `PROMPT_COMMAND=${promptCommand(given)}`);
  }
  const socket = await client.webSocket(`/api/agent/${encodeURIComponent(id)}/exec?${query}`);
  const stopResizing = terminal && passSize(terminal, socket);
  terminal?.setRaw(true);
  try {
    return await converse(io, socket, terminal !== undefined, toStreams(io));
  } finally {
    stopResizing?.();
    terminal?.setRaw(false);
    io.stdin.destroy();
  }
}

/**
 * Returns a `PROMPT_COMMAND` that makes Bash put the agent's name before its prompt once. The host name
 * inside is that of the host.
 */
function promptCommand(agent: string): string {
  return `PS1="(${agent.replace(/[^\w./-]/g, '_')}) $PS1"; unset PROMPT_COMMAND`;
}

/** Sends every change of this terminal's size to the sandbox. The returned function ends that. */
export function passSize(terminal: Terminal, socket: WebSocket): () => void {
  return terminal.onResize(() => {
    const { columns, rows } = terminal.size();
    if (socket.readyState === socket.OPEN) socket.send(JSON.stringify({ type: 'resize', cols: columns, rows }));
  });
}
