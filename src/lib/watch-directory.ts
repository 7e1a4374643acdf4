import { statSync, watch } from 'node:fs';

export interface DirectoryWatch {
  close(): void;
}

interface SharedWatch {
  readonly listeners: Set<() => void>;
  close(): void;
}

const POLL_MS = 100;
/** Watches by directory identity: a later directory of the same name has another key. */
const watches = new Map<string, SharedWatch>();

/**
 * Calls `changed` when something in a directory may have changed, and perhaps more often. Throws when the
 * directory does not exist.
 *
 * Code in a sandbox may write often, and a directory may have many listeners. They share one watch, and each
 * is called once for all changes in a turn of the event loop. The kernel limits watches per user, and code in
 * a sandbox with the service's user can exhaust them. In that case the listeners are called ten times a
 * second.
 */
export function watchDirectory(path: string, changed: () => void): DirectoryWatch {
  const { dev, ino, birthtimeNs } = statSync(path, { bigint: true });
  const key = `${dev} ${ino} ${birthtimeNs}`;
  const shared = watches.get(key) ?? share(path);
  watches.set(key, shared);
  // A new function for each caller, since a set would merge equal ones.
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
