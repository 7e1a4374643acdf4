import type { Client } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';

/** The number of lines that an explanation shows. */
const LINES = 5;
const MAX_LINE_CHARS = 500;

/** Returns the last lines of a log; none if the log is gone or cannot be read. */
export async function readLogEnd(
  client: Client,
  path: string,
  query: Readonly<Record<string, string>> = {},
): Promise<readonly string[]> {
  try {
    return lastLines(await client.text('GET', `${path}?${new URLSearchParams({ ...query, tail: String(LINES) })}`));
  } catch (error) {
    if (error instanceof CliError) return [];
    throw error;
  }
}

/** Returns the last lines of a text, each cut to a bounded length. */
export function lastLines(text: string): readonly string[] {
  const lines = text.replace(/\n+$/, '').split('\n');
  const shown = lines.slice(-LINES).filter((line, at) => line !== '' || at > 0);
  return shown.map(line => (line.length > MAX_LINE_CHARS ? `${line.slice(0, MAX_LINE_CHARS - 1)}…` : line));
}
