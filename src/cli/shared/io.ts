import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { processEnvironment } from '../../config/env.ts';
import type { Environment } from '../../core/environment.ts';

/** The environment of a command, which tests replace to run commands in their own process. */
export interface Io {
  readonly environment: Environment;
  readonly out: Output;
  readonly err: Output;
  readonly stdin: Readable;
  /** Aborts the command, for example when the reader of a pipe closes it or after Ctrl-C. */
  readonly signal: AbortSignal;
  /** The terminal of stdin and stdout; absent when one of them is not a terminal. */
  readonly terminal?: Terminal;
}

export interface Terminal {
  size(): { readonly columns: number; readonly rows: number };
  /** Switches the raw mode, which passes every key unchanged, Ctrl-C too. */
  setRaw(isRaw: boolean): void;
  /** Calls `listener` when the size has changed. The returned function unsubscribes. */
  onResize(listener: () => void): () => void;
}

export interface Output {
  /** Returns false if the caller should wait for `drained` before the next write. */
  write(text: string | Uint8Array): boolean;
  /** Resolves when the output accepts more. */
  drained(): Promise<void>;
  /** True for a terminal, which a person reads. */
  readonly isTerminal: boolean;
  readonly columns: number;
}

/** A command's context, in addition to its arguments. */
export interface Context {
  readonly io: Io;
  /** The version of this program. */
  readonly version: string;
  /** The exit code of the command when it does not throw. */
  exitCode: number;
}

const DEFAULT_COLUMNS = 80;

/** Returns the streams and the environment of this process. */
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
  // Some terminals report 0 when their size is unknown.
  size: () => ({ columns: process.stdout.columns || DEFAULT_COLUMNS, rows: process.stdout.rows || DEFAULT_ROWS }),
  setRaw: isRaw => void process.stdin.setRawMode(isRaw),
  onResize(listener) {
    process.stdout.on('resize', listener);
    return () => void process.stdout.off('resize', listener);
  },
};

/** Writes all chunks at the reader's speed. Ends without an error when `signal` aborts. */
export async function pump(source: AsyncIterable<Uint8Array>, output: Output, signal: AbortSignal): Promise<void> {
  for await (const chunk of source) {
    if (signal.aborted) return;
    if (!output.write(chunk)) await output.drained();
  }
}
