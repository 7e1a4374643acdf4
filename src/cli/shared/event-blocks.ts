import type { Client } from './client.ts';
import { CliError, EXIT } from './exit.ts';
import type { Io } from './io.ts';

/** Detects a connection that broke silently, because the service sends at least a heartbeat every 15 s. */
const SILENT_MS = 40_000;

interface EventStream {
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Noun for the message when the service ends the stream. */
  readonly noun: string;
  /** True if the service ends the stream by itself. */
  readonly ends?: boolean;
}

/**
 * Reads server-sent events until the user interrupts, and calls `show` with each block of lines. Fails with a
 * `CliError` when the connection breaks, is silent, or is ended by the service unless `ends`. Fails with the
 * error that `show` throws.
 */
export async function followEventBlocks(
  io: Io,
  client: Client,
  { path, headers, noun, ends = false }: EventStream,
  show: (block: string) => void,
): Promise<void> {
  const answer = await client.stream('GET', path, { headers: { accept: 'text/event-stream', ...headers } });
  answer.setEncoding('utf8');
  const silence = setTimeout(() => answer.destroy(new Error(`nothing came for ${SILENT_MS / 1000} s`)), SILENT_MS);
  let rest = '';
  try {
    for await (const chunk of answer as AsyncIterable<string>) {
      silence.refresh();
      const blocks = (rest + chunk).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) show(block);
    }
  } catch (error) {
    if (io.signal.aborted) return;
    if (error instanceof CliError) throw error;
    throw new CliError(`The connection to the service broke (${(error as Error).message}).`, EXIT.unreachable);
  } finally {
    clearTimeout(silence);
  }
  if (!io.signal.aborted && !ends) throw new CliError(`The service has ended the ${noun}.`, EXIT.unreachable);
}
