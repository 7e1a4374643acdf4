import { on } from 'node:events';
import type { WebSocket } from 'ws';
import type { Connection, RequestOptions } from './connection.ts';
import { RookeryError } from './error.ts';

export interface TerminalOptions extends RequestOptions {
  /** Command to run. `/bin/sh -c` runs a string; a list is an argument vector. Absent: a login shell. */
  readonly command?: string | readonly string[];
  /** False: the command gets no terminal, and its stderr stays separate. Default: true. */
  readonly tty?: boolean;
  /** Width of the terminal in characters; default: 80. */
  readonly cols?: number;
  /** Height of the terminal in lines; default: 24. */
  readonly rows?: number;
  /** Working directory of the command. Default: the working directory of the sandbox. */
  readonly workingDir?: string;
  /** Variables to add to the environment of the sandbox. */
  readonly env?: Readonly<Record<string, string>>;
}

/** A piece of a command's output. With a terminal every piece is `stdout`. */
export interface Output {
  readonly from: 'stdout' | 'stderr';
  readonly data: Buffer;
}

const STDERR = 2;
/** Number of unread messages above which the client pauses the connection. */
const HIGH_WATER = 64;
const NORMAL = 1000;
/** `readyState` of an open WebSocket. */
const OPEN = 1;

/**
 * A command in a sandbox with open streams. Read the output to its end (`for await`) or call `wait`: unread
 * output blocks the command.
 */
export class Terminal implements AsyncIterable<Output> {
  /** Exit code of the command after all output was read; null if the command ended without one. */
  returncode: number | null = null;
  readonly #socket: WebSocket;
  readonly #hasTerminal: boolean;
  readonly #signal: AbortSignal | undefined;
  readonly #messages: AsyncIterableIterator<[Buffer, boolean]>;
  readonly #closed: Promise<readonly [code: number, reason: string]>;

  /** @internal */
  constructor(socket: WebSocket, hasTerminal: boolean, signal: AbortSignal | undefined) {
    this.#socket = socket;
    this.#signal = signal;
    this.#hasTerminal = hasTerminal;
    this.#closed = new Promise(resolve =>
      socket.once('close', (code: number, reason: Buffer) => resolve([code, reason.toString()])),
    );
    const options = { close: ['close'], highWaterMark: HIGH_WATER, lowWaterMark: 1 };
    this.#messages = on(socket, 'message', options) as AsyncIterableIterator<[Buffer, boolean]>;
    socket.resume();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Output> {
    // `for await` would end the iterator when the reader leaves its loop; the reader may continue later.
    for (;;) {
      const next = await this.#messages.next();
      if (next.done === true) break;
      const [message, isBinary] = next.value;
      if (!isBinary) {
        const { type, returncode } = JSON.parse(message.toString()) as { type?: string; returncode?: number };
        if (type === 'exit') this.returncode = returncode ?? null;
      } else if (this.#hasTerminal) yield { from: 'stdout', data: message };
      else yield { from: message[0] === STDERR ? 'stderr' : 'stdout', data: message.subarray(1) };
    }
    const [code, reason] = await this.#closed;
    if (this.returncode === null && code !== NORMAL) {
      this.#signal?.throwIfAborted();
      throw new RookeryError(`the terminal was interrupted: ${reason || `code ${code}`}`);
    }
  }

  /** Discards the remaining output and returns the exit code, or null if the command ended without one. */
  async wait(): Promise<number | null> {
    for await (const _ of this) {
      // The caller does not want the output.
    }
    return this.returncode;
  }

  /** Sends input to the command. Fails with `RookeryError` if the terminal is closed. */
  write(data: string | Uint8Array): Promise<void> {
    // The message of the library names only the number of the state.
    if (this.#socket.readyState !== OPEN) return Promise.reject(new RookeryError('the terminal is closed'));
    return new Promise((resolve, reject) => {
      this.#socket.send(Buffer.from(data as string), { binary: true }, cause =>
        cause ? reject(new RookeryError(`the terminal is closed: ${cause.message}`, { cause })) : resolve(),
      );
    });
  }

  /** Changes the size of the terminal. */
  resize(cols: number, rows: number): void {
    this.#socket.send(JSON.stringify({ type: 'resize', cols, rows }));
  }

  /** Closes the input of the command. */
  endInput(): void {
    this.#socket.send(JSON.stringify({ type: 'stdin-end' }));
  }

  /** Closes the connection, which also ends the command, but not a process of `Processes`. */
  close(): void {
    this.#socket.close(NORMAL);
    // Unread messages precede the peer's close message, so reading must continue.
    this.#socket.resume();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** @internal */
export async function openTerminal(
  connection: Connection,
  instanceId: string,
  { command, tty = true, cols, rows, workingDir, env = {}, ...options }: TerminalOptions,
): Promise<Terminal> {
  const query = {
    tty,
    cols,
    rows,
    working_dir: workingDir,
    command: typeof command === 'object' ? JSON.stringify(command) : command,
    // The parameter may be repeated, which its type does not say.
    env: Object.entries(env).map(([name, value]) => `${name}=${value}`) as unknown as string,
  };
  const socket = await connection.webSocket('openExec', { ...options, params: { instanceId }, query });
  return new Terminal(socket, tty, options.signal);
}
