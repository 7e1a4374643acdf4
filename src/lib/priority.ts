import { getPriority, setPriority } from 'node:os';

/** As `nice`: the main thread then gets nine times the share of a processor that one busy process of a caller gets. */
const SERVING = -10;
const USUAL = 0;

let servesFirst = false;

/**
 * From now on this thread, through which every request goes, comes before the code that it calls, and a sandbox that is busy cannot hold up
 * the others. False, and nothing has changed: the process may not do that (an ordinary user without `ulimit -e`), or whoever has started it
 * has given it a priority of its own.
 */
export function serveFirst(): boolean {
  try {
    if (getPriority() !== USUAL) return false;
    setPriority(SERVING);
    servesFirst = true;
  } catch {
    // It is never needed.
  }
  return servesFirst;
}

/** What `begin` starts has the priority that this process was started with: a child takes over that of the thread that makes it. */
export function atUsualPriority<T>(begin: () => T): T {
  if (!servesFirst) return begin();
  setPriority(USUAL);
  try {
    return begin();
  } finally {
    setPriority(SERVING);
  }
}
