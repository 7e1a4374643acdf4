import { statSync, watch } from 'node:fs';

export interface DirectoryWatch {
  close(): void;
}

interface SharedWatch {
  readonly listeners: Set<() => void>;
  close(): void;
}

const POLL_MS = 100;
/** By the directory itself: one of the same name that came later is another. */
const watches = new Map<string, SharedWatch>();

/**
 * Calls `changed` when something in a directory may have changed, and perhaps more often. Throws when the directory is not there.
 *
 * Code in a sandbox writes as often as it likes and many may watch: they share one watch, and are called once for all that changed in one turn
 * of the event loop. The kernel counts watches by user, and code in a sandbox that runs as ours can take all of them. Then it is looked at
 * ten times a second.
 */
export function watchDirectory(path: string, changed: () => void): DirectoryWatch {
  const { dev, ino, birthtimeNs } = statSync(path, { bigint: true });
  const key = `${dev} ${ino} ${birthtimeNs}`;
  const shared = watches.get(key) ?? share(path);
  watches.set(key, shared);
  // Each has a function of its own, also where one is given twice.
  const listener = () => changed();
  shared.listeners.add(listener);
  return {
    close: () => {
      if (!shared.listeners.delete(listener) || shared.listeners.size > 0) return;
      shared.close();
      watches.delete(key);
    },
  };
}

function share(path: string): SharedWatch {
  const listeners = new Set<() => void>();
  let isTold = false;
  const tell = () => {
    if (isTold) return;
    isTold = true;
    setImmediate(() => {
      isTold = false;
      for (const listener of listeners) listener();
    });
  };
  try {
    const watcher = watch(path, tell);
    watcher.on('error', tell);
    return { listeners, close: () => watcher.close() };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'EMFILE' && code !== 'ENOSPC') throw error;
    const timer = setInterval(tell, POLL_MS);
    return { listeners, close: () => clearInterval(timer) };
  }
}
