import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, readlink, realpath, stat } from 'node:fs/promises';

/** Of open(2), not among Node's constants: says where something is, reads nothing, and has no effect on what it opens, a device included. */
export const O_PATH = 0o10_000_000;

/** The file or directory at a path of this host. */
export interface PathFacts {
  /** Where it is, links followed. */
  readonly resolved: string;
  readonly kind: 'file' | 'directory' | 'other';
  readonly uid: number;
  readonly gid: number;
  readonly mode: number;
  readonly device: number;
  readonly inode: number;
}

/** A file or directory that is held open until `close`: whatever happens to its name, `link` leads to what was found. */
export interface OpenedPath extends PathFacts {
  /** A path to it that only this process can use. A name appended to it is looked up in the opened directory, as `openat` does, which Node lacks. */
  readonly link: string;
  close(): Promise<void>;
}

/** Looks at a path without opening it; links are followed. Null when nothing is there, or this process may not look. */
export async function findPath(path: string): Promise<PathFacts | null> {
  // At the same time: what is used later is opened and looked at again.
  const [resolved, facts] = await Promise.all([realpath(path).catch(() => null), stat(path).catch(() => null)]);
  return resolved === null || facts === null ? null : { resolved, ...factsOf(facts) };
}

/**
 * Opens a path without reading it; links are followed. Null when nothing is there, when this process may not look, and when a link led through
 * /proc into another mount namespace (the root of a sandbox): a path there means something else here.
 */
export async function openPath(path: string): Promise<OpenedPath | null> {
  const handle = await open(path, O_PATH).catch(() => null);
  const found = handle === null ? null : await opened(handle);
  if (found === null || (await isAt(found, found.resolved))) return found;
  await found.close();
  return null;
}

/** Opens what a directory has under a name. A link is not followed: its kind is `other`. Null when nothing is there. */
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
    // A file without a name is nowhere, whatever the kernel calls it.
    if (facts.nlink > 0) {
      return { resolved: await readlink(link), ...factsOf(facts), link, close: () => handle.close() };
    }
  } catch {
    // As one that is not there.
  }
  await handle.close();
  return null;
}

function factsOf(facts: Stats): Omit<PathFacts, 'resolved'> {
  const kind = facts.isDirectory() ? 'directory' : facts.isFile() ? 'file' : 'other';
  const { uid, gid, mode, dev: device, ino: inode } = facts;
  return { kind, uid, gid, mode, device, inode };
}
