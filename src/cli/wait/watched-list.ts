import { Changes, RELOOK_MS } from '../deploy/changes.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import type { Io } from '../shared/io.ts';
import { clearScreen } from '../shared/print.ts';

export interface WatchOptions extends ClientOptions {
  readonly watch?: boolean;
}

/** Prints a list. Returns its data, so that two lists can be compared. */
type PrintList = (io: Io, client: Client) => Promise<unknown>;

/**
 * Prints a list once, or with `--watch` after each change until Ctrl-C. On a terminal the new list replaces
 * the old one.
 */
export async function printList(
  io: Io,
  options: WatchOptions,
  types: readonly string[],
  print: PrintList,
): Promise<void> {
  const client = await Client.open(options, io);
  if (options.watch !== true) {
    await print(io, client);
    return;
  }
  using changes = await Changes.follow(io, client, types);
  let before: string | null = null;
  while (!io.signal.aborted) {
    let text = '';
    const out = {
      ...io.out,
      write(more: string | Uint8Array) {
        text += more.toString();
        return true;
      },
    };
    const now = JSON.stringify(await print({ ...io, out }, client));
    // A terminal is redrawn, because ages grow; other outputs get only changed lists.
    if (io.out.isTerminal) io.out.write(`${clearScreen()}${text}`);
    else if (now !== before) io.out.write(before === null || text === '' ? text : `\n${text}`);
    before = now;
    await changes.next(RELOOK_MS);
  }
}
