import { Changes, RELOOK_MS } from './changes.ts';
import { Client, type ClientOptions } from './client.ts';
import type { Io } from './io.ts';
import { clearScreen } from './print.ts';

export interface WatchOptions extends ClientOptions {
  readonly watch?: boolean;
}

/** Prints a list; answers what it is about, so that two can be compared. */
type PrintList = (io: Io, client: Client) => Promise<unknown>;

/** Once; with `--watch` whenever it has changed, until Ctrl-C. On a terminal the new list stands in the place of the old one. */
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
    // On a terminal ages go on; elsewhere only news are news.
    if (io.out.isTerminal) io.out.write(`${clearScreen()}${text}`);
    else if (now !== before) io.out.write(before === null || text === '' ? text : `\n${text}`);
    before = now;
    await changes.next(RELOOK_MS);
  }
}
