import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { processEnvironment } from '../config/env.ts';
import type { Environment } from '../core/environment.ts';

/** The world around a command, as it sees it, so that tests can run commands in their own process. */
export interface Io {
  readonly environment: Environment;
  readonly out: Output;
  readonly err: Output;
  readonly stdin: Readable;
  /** Leaves, for example because the reader of a pipe went away or Ctrl-C was pressed. */
  readonly signal: AbortSignal;
  /** The terminal that both stdin and stdout are; absent when one of them is something else. */
  readonly terminal?: Terminal;
}

export interface Terminal {
  size(): { readonly columns: number; readonly rows: number };
  /** Raw: every key is passed on as it is, Ctrl-C too. */
  setRaw(isRaw: boolean): void;
  /** Calls `listener` when the size has changed. The returned function ends it. */
  onResize(listener: () => void): () => void;
}

export interface Output {
  /** False when more should wait for `drained`. */
  write(text: string | Uint8Array): boolean;
  /** Resolves when there is room again. */
  drained(): Promise<void>;
  /** A person reads along. */
  readonly isTerminal: boolean;
  readonly columns: number;
}

/** A command's context beside its arguments. */
export interface Context {
  readonly io: Io;
  /** Of this program. */
  readonly version: string;
  /** The exit code of the command when it throws nothing. */
  exitCode: number;
}

const DEFAULT_COLUMNS = 80;

/** The real world. */
export function processIo(signal: AbortSignal): Io {
  const output = (stream: NodeJS.WriteStream): Output => ({
    write: text => stream.write(text),
    drained: () => once(stream, 'drain', { signal }).then(() => {}),
    isTerminal: stream.isTTY === true,
    columns: stream.columns ?? DEFAULT_COLUMNS,
  });
  return {
    environment: processEnvironment(),
    out: output(process.stdout),
    err: output(process.stderr),
    stdin: process.stdin,
    signal,
    ...(process.stdin.isTTY && process.stdout.isTTY ? { terminal: TERMINAL } : {}),
  };
}

const DEFAULT_ROWS = 24;

const TERMINAL: Terminal = {
  // 0 is what a terminal says that does not know.
  size: () => ({ columns: process.stdout.columns || DEFAULT_COLUMNS, rows: process.stdout.rows || DEFAULT_ROWS }),
  setRaw: isRaw => void process.stdin.setRawMode(isRaw),
  onResize(listener) {
    process.stdout.on('resize', listener);
    return () => void process.stdout.off('resize', listener);
  },
};

/** Writes everything that comes, no faster than the reader takes it. Ends quietly when `signal` aborts. */
export async function pump(source: AsyncIterable<Uint8Array>, output: Output, signal: AbortSignal): Promise<void> {
  for await (const chunk of source) {
    if (signal.aborted) return;
    if (!output.write(chunk)) await output.drained();
  }
}
