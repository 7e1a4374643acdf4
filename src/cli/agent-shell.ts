import { Writable } from 'node:stream';
import type { WebSocket } from 'ws';
import { receive, send, sendBinary } from '../lib/socket-stream.ts';
import { resolveAgent } from './agent-records.ts';
import { Client, type ClientOptions } from './client.ts';
import { CliError, EXIT } from './exit.ts';
import type { Io, Output, Terminal } from './io.ts';
import { parsePairs } from './variables.ts';

interface ShellOptions extends ClientOptions {
  readonly namespace: string;
  readonly workdir?: string;
  readonly env?: readonly string[];
  readonly tty: boolean;
}

const STDERR = 2;
const NORMAL = 1000;
const STDIN_END = JSON.stringify({ type: 'stdin-end' });

/** A command (else a login shell) in the sandbox, with this terminal or with pipes. Answers its exit code. */
export async function shellInAgent(
  io: Io,
  given: string,
  command: readonly string[],
  options: ShellOptions,
): Promise<number> {
  const terminal = options.tty ? io.terminal : undefined;
  const client = await Client.open(options, io);
  const id = await resolveAgent(client, given, options.namespace);
  const query = new URLSearchParams();
  if (command.length > 0) query.set('command', JSON.stringify(command));
  if (options.workdir !== undefined) query.set('working_dir', options.workdir);
  for (const [name, value] of Object.entries(parsePairs(options.env ?? [], '--env')))
    query.append('env', `${name}=${value}`);
  if (terminal) {
    const { columns, rows } = terminal.size();
    query.set('tty', 'true');
    query.set('cols', String(columns));
    query.set('rows', String(rows));
    const term = io.environment.TERM;
    if (term) query.append('env', `TERM=${term}`);
  }
  const socket = await client.webSocket(`/api/agent/${encodeURIComponent(id)}/exec?${query}`);
  const stopResizing = terminal && passSize(terminal, socket);
  terminal?.setRaw(true);
  try {
    return await converse(io, socket, terminal !== undefined);
  } finally {
    stopResizing?.();
    terminal?.setRaw(false);
    io.stdin.destroy();
  }
}

async function converse(io: Io, socket: WebSocket, hasTerminal: boolean): Promise<number> {
  let returncode: number | undefined;
  const output = new Writable({
    write(chunk: Buffer, _encoding, done) {
      // With pipes the first byte says which one it is of.
      const isStderr = !hasTerminal && chunk[0] === STDERR;
      write(isStderr ? io.err : io.out, hasTerminal ? chunk : chunk.subarray(1)).then(() => done(), done);
    },
  });
  // A reader that went away is no fault.
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
    // The socket has closed, which says the rest.
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

/** Tells the other side of every change of this terminal's size. */
function passSize(terminal: Terminal, socket: WebSocket): () => void {
  return terminal.onResize(() => {
    const { columns, rows } = terminal.size();
    if (socket.readyState === socket.OPEN) socket.send(JSON.stringify({ type: 'resize', cols: columns, rows }));
  });
}
