import { watch } from 'node:fs';

export interface DirectoryWatch {
  close(): void;
}

const POLL_MS = 100;

/**
 * Calls `changed` when something in a directory may have changed, and perhaps more often. Throws when the directory is not there.
 *
 * The kernel counts watches by user, and code in a sandbox that runs as ours can take all of them. Then it is looked at ten times a second.
 */
export function watchDirectory(path: string, changed: () => void): DirectoryWatch {
  try {
    const watcher = watch(path, changed);
    watcher.on('error', changed);
    return watcher;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'EMFILE' && code !== 'ENOSPC') throw error;
    const timer = setInterval(changed, POLL_MS);
    return { close: () => clearInterval(timer) };
  }
}
