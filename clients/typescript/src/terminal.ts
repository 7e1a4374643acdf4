import { on } from 'node:events';
import type { WebSocket } from 'ws';
import type { Connection, RequestOptions } from './connection.ts';
import { RookeryError } from './error.ts';

export interface TerminalOptions extends RequestOptions {
  /** Absent: a login shell. A text is run by `/bin/sh -c`. */
  readonly command?: string | readonly string[];
  readonly tty?: boolean;
  readonly cols?: number;
  readonly rows?: number;
  readonly workingDir?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** A piece of what a command wrote. With a terminal all of it is `stdout`. */
export interface Output {
  readonly from: 'stdout' | 'stderr';
  readonly data: Buffer;
}

const STDERR = 2;
/** Messages that wait for the reader. */
const HIGH_WATER = 64;
const NORMAL = 1000;

/** A command in a sandbox with open streams. Read it (`for await`) to its end, or `wait`: a reader who pauses holds it up. */
export class Terminal implements AsyncIterable<Output> {
  /** Its exit code, once all was read; null when it ended without one. */
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
    // Not `for await` over them: a reader who leaves its loop may come back for the rest.
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
      throw new RookeryError(`the terminal broke off: ${reason || `code ${code}`}`);
    }
  }

  /** Reads what is left, and answers the exit code. */
  async wait(): Promise<number | null> {
    for await (const _ of this) {
      // Whoever wants it reads it.
    }
    return this.returncode;
  }

  write(data: string | Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#socket.send(Buffer.from(data as string), { binary: true }, cause =>
        cause ? reject(new RookeryError(`the terminal is closed: ${cause.message}`, { cause })) : resolve(),
      );
    });
  }

  resize(cols: number, rows: number): void {
    this.#socket.send(JSON.stringify({ type: 'resize', cols, rows }));
  }

  /** No more input will come. */
  endInput(): void {
    this.#socket.send(JSON.stringify({ type: 'stdin-end' }));
  }

  /** Ends the command, too. */
  close(): void {
    this.#socket.close(NORMAL);
    // Whatever nobody has read stands before the answer to this.
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
    // May be repeated.
    env: Object.entries(env).map(([name, value]) => `${name}=${value}`) as unknown as string,
  };
  const socket = await connection.webSocket('openExec', { ...options, params: { instanceId }, query });
  return new Terminal(socket, tty, options.signal);
}
