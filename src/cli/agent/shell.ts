import type { WebSocket } from 'ws';
import { Client, type ClientOptions } from '../shared/client.ts';
import type { Io, Terminal } from '../shared/io.ts';
import { type CommandOptions, commandQuery, converse, toStreams } from './command.ts';
import { resolveAgent } from './records.ts';

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

/** Sends every change of this terminal's size to the sandbox. */
function passSize(terminal: Terminal, socket: WebSocket): () => void {
  return terminal.onResize(() => {
    const { columns, rows } = terminal.size();
    if (socket.readyState === socket.OPEN) socket.send(JSON.stringify({ type: 'resize', cols: columns, rows }));
  });
}
