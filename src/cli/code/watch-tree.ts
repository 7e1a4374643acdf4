import { type FSWatcher, lstatSync, readdirSync, watch } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';

/** More directories than a personal project has. Each costs one watch of the kernel. */
const MAX_DIRECTORIES = 5000;
/** Default interval between polls where the kernel cannot watch. */
const LOOK_MS = 1000;
const NO_MORE_WATCHES = new Set<unknown>(['ENOSPC', 'EMFILE', 'ENFILE']);

interface Watching {
  close(): void;
}

/**
 * Calls `changed` for everything below `root` that is written, created, renamed or removed. The path is
 * relative to `root`; `''` means that `root` itself was replaced.
 *
 * Watches directories instead of files, because editors write a new file and rename it; a watch would follow
 * the old file. Directories that `isIgnored` names are not watched. If the kernel has no watch left for this
 * user, the function calls `failed` and polls every `lookMs` instead.
 */
export function watchTree(
  root: string,
  isIgnored: (path: string) => boolean,
  changed: (path: string) => void,
  failed: (error: Error) => void,
  lookMs = LOOK_MS,
): Watching {
  const watchers = new Map<string, FSWatcher>();
  let looking: Watching | null = null;
  const lookInstead = (error: Error) => {
    if (looking !== null) return;
    forget(root);
    looking = lookAt(root, isIgnored, changed, lookMs);
    failed(noWatchLeft(error, lookMs));
  };
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
        // Another directory may have replaced it.
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
  /** Watches a directory before reading it, so that no change in between is missed. */
  const addAll = (directory: string) => {
    if (looking !== null) return;
    try {
      add(directory);
      for (const entry of readdirSync(directory, { withFileTypes: true })) {
        const path = join(directory, entry.name);
        if (entry.isDirectory() && !isIgnored(relative(root, path))) addAll(path);
      }
    } catch (error) {
      if (NO_MORE_WATCHES.has((error as NodeJS.ErrnoException).code)) lookInstead(error as Error);
      // The directory has already been removed, unless it is `root`.
      else if (directory === root) failed(error as Error);
    }
  };
  addAll(root);
  const above = watchForAnother(root, () => {
    if (looking !== null) return;
    forget(root);
    // During the replacement the name does not exist for a moment; another event follows.
    if (!isDirectory(dirname(root), basename(root))) return;
    addAll(root);
    changed('');
  });
  return {
    close: () => {
      above?.close();
      forget(root);
      looking?.close();
    },
  };
}

function noWatchLeft({ message }: Error, lookMs: number): Error {
  return new Error(
    `the kernel has no watch left for this user (${message}). The directory is read every ${lookMs / 1000} s instead; fs.inotify.max_user_watches and fs.inotify.max_user_instances (sysctl) are the limits`,
  );
}

/**
 * Calls `replaced` when another file or directory replaces `root`. Returns null where that cannot be watched.
 */
function watchForAnother(root: string, replaced: () => void): FSWatcher | null {
  try {
    const watcher = watch(dirname(root), (kind, name) => {
      if (kind === 'rename' && name === basename(root)) replaced();
    });
    return watcher.on('error', () => watcher.close());
  } catch {
    return null;
  }
}

/** Polls times and sizes of all files instead of using the kernel. Parameters are those of `watchTree`. */
function lookAt(
  root: string,
  isIgnored: (path: string) => boolean,
  changed: (path: string) => void,
  lookMs: number,
): Watching {
  let before = stateOf(root, isIgnored);
  const timer = setInterval(() => {
    const now = stateOf(root, isIgnored);
    for (const [path, state] of now) if (before.get(path) !== state) changed(path);
    for (const path of before.keys()) if (!now.has(path)) changed(path);
    before = now;
  }, lookMs);
  return { close: () => clearInterval(timer) };
}

function stateOf(root: string, isIgnored: (path: string) => boolean): ReadonlyMap<string, string> {
  const states = new Map<string, string>();
  const waiting = [root];
  for (let looked = 0; looked < MAX_DIRECTORIES; looked++) {
    const directory = waiting.pop();
    if (directory === undefined) break;
    try {
      for (const entry of readdirSync(directory, { withFileTypes: true })) {
        const path = join(directory, entry.name);
        const told = relative(root, path);
        if (isIgnored(told)) continue;
        // A directory's time changes with its entries, which are reported themselves.
        const { ino, mtimeMs, size } = lstatSync(path);
        states.set(told, entry.isDirectory() ? String(ino) : `${ino} ${mtimeMs} ${size}`);
        if (entry.isDirectory()) waiting.push(path);
      }
    } catch {
      // The directory is being removed; the next poll reports that.
    }
  }
  return states;
}

function isDirectory(parent: string, name: string): boolean {
  try {
    return readdirSync(parent, { withFileTypes: true }).some(entry => entry.name === name && entry.isDirectory());
  } catch {
    return false;
  }
}
