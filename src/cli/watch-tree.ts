import { type FSWatcher, readdirSync, watch } from 'node:fs';
import { join, relative } from 'node:path';

/** More than any project of one person has; each costs a watch of the kernel. */
const MAX_DIRECTORIES = 5000;

interface Watching {
  close(): void;
}

/**
 * Calls `changed` with the path (relative to `root`) of everything below `root` that is written, made, renamed or removed. Each directory is
 * watched, not each file: editors write beside a file and rename, and a watch of the file would go with the old one. What `isIgnored` names
 * is not looked into.
 */
export function watchTree(
  root: string,
  isIgnored: (path: string) => boolean,
  changed: (path: string) => void,
  failed: (error: Error) => void,
): Watching {
  const watchers = new Map<string, FSWatcher>();
  const forget = (directory: string) => {
    for (const [watched, watcher] of watchers) {
      if (watched !== directory && !watched.startsWith(`${directory}/`)) continue;
      watcher.close();
      watchers.delete(watched);
    }
  };
  const add = (directory: string) => {
    if (watchers.has(directory)) return;
    if (watchers.size === MAX_DIRECTORIES) {
      failed(new Error(`there are more than ${MAX_DIRECTORIES} directories`));
      return;
    }
    const watcher = watch(directory, (kind, name) => {
      const path = name === null ? directory : join(directory, name);
      const told = relative(root, path);
      if (isIgnored(told)) return;
      if (kind === 'rename' && path !== directory) {
        // Another directory may stand there now.
        forget(path);
        if (isDirectory(directory, String(name))) addAll(path);
      }
      changed(told);
    });
    watcher.on('error', error => {
      forget(directory);
      if (directory === root) failed(error);
    });
    watchers.set(directory, watcher);
  };
  /** Watched first and read then: what comes in between is seen by one of both. */
  const addAll = (directory: string) => {
    try {
      add(directory);
      for (const entry of readdirSync(directory, { withFileTypes: true })) {
        const path = join(directory, entry.name);
        if (entry.isDirectory() && !isIgnored(relative(root, path))) addAll(path);
      }
    } catch (error) {
      // It went as soon as it came, unless it is the one that is asked for.
      if (directory === root) failed(error as Error);
    }
  };
  addAll(root);
  return { close: () => forget(root) };
}

function isDirectory(parent: string, name: string): boolean {
  try {
    return readdirSync(parent, { withFileTypes: true }).some(entry => entry.name === name && entry.isDirectory());
  } catch {
    return false;
  }
}
