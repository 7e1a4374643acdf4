import { randomUUID } from 'node:crypto';
import type { Dirent } from 'node:fs';
import {
  chmod,
  constants,
  type FileHandle,
  mkdir,
  open,
  opendir,
  readdir,
  rename,
  rmdir,
  unlink,
} from 'node:fs/promises';
import { basename, join } from 'node:path';
import { type Backoff, backoffMs } from './backoff.ts';
import { O_PATH } from './opened-path.ts';
import { isTaken } from './system-errors.ts';

export interface RemovalsOptions {
  /**
   * Directory for paths that could not be removed at once. Must be on the file system of the removed paths,
   * and used for nothing else.
   */
  readonly directory: string;
  /** Called for each failure, with the last name of the path and the reason. */
  readonly report: (name: string, reason: string) => void;
  /** Time until the first retry; each retry that fails doubles it, up to an hour. */
  readonly retryMs?: number;
}

/** Returns the directory in which a service keeps files that it could not remove. */
export function leftoversIn(dataDir: string): string {
  return join(dataDir, 'leftovers');
}

const FIRST_RETRY_MS = 60_000;
const LONGEST_RETRY_MS = 3_600_000;

/**
 * Removes files and directories that foreign code could write to. Moves a path that cannot be removed aside,
 * so that its name is free. Retries the removal later, in the next service too.
 */
export class Removals {
  readonly #options: RemovalsOptions;
  /** Paths that could not even be moved aside. */
  readonly #inPlace = new Set<string>();
  #waiting = 0;
  #timer: NodeJS.Timeout | undefined;
  readonly #backoff: Backoff;
  #retries = 0;
  #isClosed = false;

  constructor(options: RemovalsOptions) {
    this.#options = options;
    this.#backoff = { firstMs: options.retryMs ?? FIRST_RETRY_MS, longestMs: LONGEST_RETRY_MS };
  }

  /** Number of files and directories that are still to be removed. */
  get waiting(): number {
    return this.#waiting + this.#inPlace.size;
  }

  /**
   * Removes a path. Never rejects. Afterwards nothing exists at the path, unless it cannot be moved either
   * (something is mounted on it).
   */
  async remove(path: string): Promise<void> {
    try {
      await removeTree(path);
    } catch (error) {
      this.#report(path, error);
      await this.#setAside(path);
      this.#schedule();
    }
  }

  /** Starts to remove, in the background, the paths that an earlier service could not remove. */
  start(): void {
    void this.retry();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  /** Tries once to remove everything that waits. Never rejects. */
  async retry(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const { directory } = this.#options;
    const aside = await readdir(directory).catch(() => []);
    let left = 0;
    for (const path of [...aside.map(name => join(directory, name)), ...this.#inPlace]) {
      if (this.#isClosed) return;
      try {
        await removeTree(path);
        this.#inPlace.delete(path);
      } catch (error) {
        this.#report(path, error);
        if (!this.#inPlace.has(path)) left += 1;
      }
    }
    this.#waiting = left;
    this.#retries = this.waiting === 0 ? 0 : this.#retries + 1;
    if (this.waiting > 0) this.#schedule();
  }

  async #setAside(path: string): Promise<void> {
    try {
      // Not recursive: a deleted data directory must not be created again.
      await mkdir(this.#options.directory, { mode: 0o700 }).catch(error => {
        if (!isTaken(error)) throw error;
      });
      await rename(path, join(this.#options.directory, randomUUID()));
      this.#waiting += 1;
    } catch {
      this.#inPlace.add(path);
    }
  }

  /** Keeps the time of a pending retry: repeated failures could otherwise postpone it forever. */
  #schedule(): void {
    if (this.#isClosed || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => void this.retry(), backoffMs(this.#backoff, this.#retries + 1)).unref();
  }

  #report(path: string, error: unknown): void {
    this.#options.report(basename(path), error instanceof Error ? error.message : String(error));
  }
}

const DIRECTORY_ITSELF = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** Number of directory entries that are removed at a time and read ahead. */
const BATCH = 32;
/** Longest removal, so that a program that keeps writing cannot prolong it forever. */
const LONGEST_MS = 600_000;
const SHOWN_NAME_BYTES = 100;

/**
 * Removes a file or a directory tree that foreign code has made. Handles any depth, size, name, mode and
 * link, also while a program still writes to it. Follows no link and enters no mount. A missing path counts
 * as removed. Rejects when something remains; everything else is removed then.
 *
 * A directory that is not empty is moved to the top of the tree before it is emptied. No path is then deeper
 * than two names, and no path, stack or set of descriptors grows with the tree. The kernel refuses to move a
 * directory on which something is mounted.
 */
export async function removeTree(path: string): Promise<void> {
  if ((await removeEmpty(path)) === 'gone') return;
  const top = await open(path, DIRECTORY_ITSELF);
  const endMs = performance.now() + LONGEST_MS;
  try {
    for (;;) {
      const pass = new Pass(top);
      await pass.run();
      // Directories that the pass moved to the top may still exist, since the pass may not have listed them.
      if ((await removeEmpty(path)) === 'gone') return;
      if (!pass.hasProgress) throw new Error(pass.left ?? 'it is written to');
      if (performance.now() > endMs) throw new Error(`something is left after ${LONGEST_MS / 1000} s`);
    }
  } catch (error) {
    throw new Error(`${path} was not removed: ${(error as Error).message}`, { cause: error });
  } finally {
    await top.close();
  }
}

/** Removes once all that is at the top of a tree. */
class Pass {
  hasProgress = false;
  /** The first entry that could not be removed, in words. */
  left: string | undefined;
  readonly #top: FileHandle;

  constructor(top: FileHandle) {
    this.#top = top;
  }

  async run(): Promise<void> {
    await this.#each(this.#top, entry => this.#removeAtTop(entry));
  }

  /**
   * Removes the entries of a directory. Calls `removeDirectory` for each nested directory that is not empty.
   * Never rejects.
   */
  async #each(directory: FileHandle, removeDirectory: (entry: TreeEntry) => Promise<boolean>): Promise<void> {
    await chmod(pathOf(directory), 0o700).catch(() => undefined);
    let batch: Promise<void>[] = [];
    try {
      for await (const entry of await opendir(pathOf(directory), BUFFERS)) {
        batch.push(this.#remove(new TreeEntry(directory, entry), removeDirectory));
        if (batch.length < BATCH) continue;
        await Promise.all(batch);
        batch = [];
      }
    } catch (error) {
      this.#recordFailure('a directory', error);
    }
    await Promise.all(batch);
  }

  async #remove(entry: TreeEntry, removeDirectory: (entry: TreeEntry) => Promise<boolean>): Promise<void> {
    try {
      if (!entry.isDirectory) await unlink(entry.path);
      // A mount point fails with EBUSY, and is not entered.
      else if ((await removeEmpty(entry.path)) === 'full' && !(await removeDirectory(entry))) return;
      this.hasProgress = true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') this.#recordFailure(entry.shown, error);
    }
  }

  /** Empties and removes a directory. Returns true when it was removed; the next pass handles the rest. */
  async #removeAtTop(entry: TreeEntry): Promise<boolean> {
    const directory = await open(entry.path, DIRECTORY_ITSELF);
    try {
      await this.#each(directory, async inside => {
        await this.#rename(inside.path, Buffer.from(`${pathOf(this.#top)}/${randomUUID()}`));
        return true;
      });
    } finally {
      await directory.close();
    }
    return (await removeEmpty(entry.path)) === 'gone';
  }

  /** Renames a directory. Its owner needs write permission on it for that. */
  async #rename(from: Buffer, to: Buffer): Promise<void> {
    try {
      await rename(from, to);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EACCES') throw error;
      const directory = await open(from, DIRECTORY_ITSELF);
      try {
        await chmod(pathOf(directory), 0o700);
      } finally {
        await directory.close();
      }
      await rename(from, to);
    }
  }

  #recordFailure(name: string, error: unknown): void {
    const { code, syscall, message } = error as NodeJS.ErrnoException;
    this.left ??= `${name}: ${code === undefined ? message : `${code} (${syscall})`}`;
  }
}

/** Names as bytes: a name need not be UTF-8. */
const BUFFERS = { encoding: 'buffer' as BufferEncoding, bufferSize: BATCH };

class TreeEntry {
  readonly path: Buffer;
  readonly shown: string;
  readonly isDirectory: boolean;

  constructor(directory: FileHandle, entry: Dirent) {
    const name = entry.name as unknown as Buffer;
    this.path = Buffer.concat([Buffer.from(`${pathOf(directory)}/`), name]);
    this.shown = JSON.stringify(name.subarray(0, SHOWN_NAME_BYTES).toString('utf8'));
    this.isDirectory = entry.isDirectory();
  }
}

function pathOf(directory: FileHandle): string {
  return `/proc/self/fd/${directory.fd}`;
}

/** Removes a file or an empty directory. Returns `full` for a directory that is not empty. */
async function removeEmpty(path: string | Buffer): Promise<'gone' | 'full'> {
  try {
    await rmdir(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOTEMPTY' || code === 'EEXIST') return 'full';
    if (code === 'ENOTDIR') await unlink(path);
    else if (code !== 'ENOENT') throw error;
  }
  return 'gone';
}
