import { type FSWatcher, lstatSync, readdirSync, watch } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';

/** More than any project of one person has; each costs a watch of the kernel. */
const MAX_DIRECTORIES = 5000;
/** Between two looks, where nothing can be watched. */
const LOOK_MS = 1000;
const NO_MORE_WATCHES = new Set<unknown>(['ENOSPC', 'EMFILE', 'ENFILE']);

interface Watching {
  close(): void;
}

/**
 * Calls `changed` with the path (relative to `root`) of everything below `root` that is written, made, renamed or removed. Each directory is
 * watched, not each file: editors write beside a file and rename, and a watch of the file would go with the old one. What `isIgnored` names
 * is not looked into. The directory itself may be replaced too, which is told as `''`. Where the kernel has no watch left for this user, `failed` hears of it, and all of it is looked at every second instead.
 */
export function watchTree(
  root: string,
  isIgnored: (path: string) => boolean,
  changed: (path: string) => void,
  failed: (error: Error) => void,
): Watching {
  const watchers = new Map<string, FSWatcher>();
  let looking: Watching | null = null;
  const lookInstead = (error: Error) => {
    if (looking !== null) return;
    forget(root);
    looking = lookAt(root, isIgnored, changed);
    failed(
      new Error(
        `the kernel has no watch left for this user (${error.message}). It is looked at every ${LOOK_MS / 1000} s instead; fs.inotify.max_user_watches and fs.inotify.max_user_instances (sysctl) are the limits`,
      ),
    );
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
    if (looking !== null) return;
    try {
      add(directory);
      for (const entry of readdirSync(directory, { withFileTypes: true })) {
        const path = join(directory, entry.name);
        if (entry.isDirectory() && !isIgnored(relative(root, path))) addAll(path);
      }
    } catch (error) {
      if (NO_MORE_WATCHES.has((error as NodeJS.ErrnoException).code)) lookInstead(error as Error);
      // It went as soon as it came, unless it is the one that is asked for.
      else if (directory === root) failed(error as Error);
    }
  };
  addAll(root);
  const above = watchForAnother(root, () => {
    if (looking !== null) return;
    forget(root);
    // Between the two there is none for a moment, and then it comes.
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

/** Calls `replaced` when something else stands under the name of `root`; null where that cannot be watched. */
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

/** As `watchTree`, without the kernel: by the times and sizes of everything. */
function lookAt(root: string, isIgnored: (path: string) => boolean, changed: (path: string) => void): Watching {
  let before = stateOf(root, isIgnored);
  const timer = setInterval(() => {
    const now = stateOf(root, isIgnored);
    for (const [path, state] of now) if (before.get(path) !== state) changed(path);
    for (const path of before.keys()) if (!now.has(path)) changed(path);
    before = now;
  }, LOOK_MS);
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
        // A directory changes with what is in it, which is reported itself.
        const { ino, mtimeMs, size } = lstatSync(path);
        states.set(told, entry.isDirectory() ? String(ino) : `${ino} ${mtimeMs} ${size}`);
        if (entry.isDirectory()) waiting.push(path);
      }
    } catch {
      // It goes just now: the next look finds it gone.
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
