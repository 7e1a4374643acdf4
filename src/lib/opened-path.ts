import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, readlink, realpath, stat } from 'node:fs/promises';

/**
 * Flag of open(2) that is missing in Node's constants. Opens a location without reading it and without side
 * effects, even on a device.
 */
export const O_PATH = 0o10_000_000;

/** The file or directory at a path of this host. */
export interface PathFacts {
  /** The path with all links resolved. */
  readonly resolved: string;
  readonly kind: 'file' | 'directory' | 'other';
  readonly uid: number;
  readonly gid: number;
  readonly mode: number;
  readonly device: number;
  readonly inode: number;
}

/** A file or directory that is held open until `close`. `link` leads to it even when its name changes. */
export interface OpenedPath extends PathFacts {
  /**
   * A path to it that only this process can use. A name appended to it is looked up in the opened directory,
   * as `openat` does, which Node lacks.
   */
  readonly link: string;
  close(): Promise<void>;
}

/**
 * Reads the facts of a path without opening it; follows links. Null when nothing exists there, or this
 * process lacks the right to look.
 */
export async function findPath(path: string): Promise<PathFacts | null> {
  // The two calls run in parallel and may see different files. `openPath` checks again before use.
  const [resolved, facts] = await Promise.all([realpath(path).catch(() => null), stat(path).catch(() => null)]);
  return resolved === null || facts === null ? null : { resolved, ...factsOf(facts) };
}

/**
 * Opens a path without reading it; follows links. Null when nothing exists there, or this process lacks the
 * right to look. Null also when a link led through /proc into another mount namespace (the root of a
 * sandbox). A path there has another meaning here.
 */
export async function openPath(path: string): Promise<OpenedPath | null> {
  const handle = await open(path, O_PATH).catch(() => null);
  const found = handle === null ? null : await opened(handle);
  if (found === null || (await isAt(found, found.resolved))) return found;
  await found.close();
  return null;
}

/**
 * Opens the entry of a directory with this name. Does not follow a link: its kind is `other`. Null when
 * nothing exists there.
 */
export async function openEntry(directory: Pick<OpenedPath, 'link'>, name: string): Promise<OpenedPath | null> {
  const handle = await open(`${directory.link}/${name}`, O_PATH | constants.O_NOFOLLOW).catch(() => null);
  return handle === null ? null : await opened(handle);
}

async function isAt({ device, inode }: PathFacts, path: string): Promise<boolean> {
  const facts = await stat(path).catch(() => null);
  return facts !== null && facts.dev === device && facts.ino === inode;
}

async function opened(handle: FileHandle): Promise<OpenedPath | null> {
  const link = `/proc/self/fd/${handle.fd}`;
  try {
    const facts = await handle.stat();
    // A file without a name has no path, although the kernel reports one.
    if (facts.nlink > 0) {
      return { resolved: await readlink(link), ...factsOf(facts), link, close: () => handle.close() };
    }
  } catch {
    // Treated as missing.
  }
  await handle.close();
  return null;
}

function factsOf(facts: Stats): Omit<PathFacts, 'resolved'> {
  const kind = facts.isDirectory() ? 'directory' : facts.isFile() ? 'file' : 'other';
  const { uid, gid, mode, dev: device, ino: inode } = facts;
  return { kind, uid, gid, mode, device, inode };
}
