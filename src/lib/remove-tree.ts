import { randomUUID } from 'node:crypto';
import type { Dirent } from 'node:fs';
import { chmod, constants, type FileHandle, open, opendir, rename, rmdir, unlink } from 'node:fs/promises';
import { O_PATH } from './opened-path.ts';

const DIRECTORY_ITSELF = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** Entries of one directory that are worked on at a time, and read ahead. */
const BATCH = 32;
/** Who writes as fast as this removes does not keep it for ever. */
const LONGEST_MS = 600_000;
const SHOWN_NAME_BYTES = 100;

/**
 * Removes a file, or a directory with all that is in it, as foreign code has left it: of any depth, of any size, whatever its names, modes
 * and links are, and while somebody still writes to it. Nothing is followed and nothing that is mounted is entered. What is not there is
 * removed. Rejects when something is left; everything else is gone then.
 *
 * A directory that is not empty is moved to the top of the tree before it is emptied. So nothing here is ever deeper than two names, and no
 * path, stack or set of descriptors grows with the tree. The kernel refuses to move a directory on which something is mounted.
 */
export async function removeTree(path: string): Promise<void> {
  if ((await removeEmpty(path)) === 'gone') return;
  const top = await open(path, DIRECTORY_ITSELF);
  const endMs = performance.now() + LONGEST_MS;
  try {
    for (;;) {
      const pass = new Pass(top);
      await pass.run();
      // Directories that it has moved to the top may be there still, or be seen by the next pass only.
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

/** Looks once at all that is at the top of a tree. */
class Pass {
  hasProgress = false;
  /** The first that could not be removed, in words. */
  left: string | undefined;
  readonly #top: FileHandle;

  constructor(top: FileHandle) {
    this.#top = top;
  }

  async run(): Promise<void> {
    await this.#each(this.#top, entry => this.#removeAtTop(entry));
  }

  /** Removes what is in a directory; `removeDirectory` is asked for each in it that is not empty. Never rejects. */
  async #each(directory: FileHandle, removeDirectory: (entry: Entry) => Promise<boolean>): Promise<void> {
    await chmod(pathOf(directory), 0o700).catch(() => undefined);
    let batch: Promise<void>[] = [];
    try {
      for await (const entry of await opendir(pathOf(directory), BUFFERS)) {
        batch.push(this.#remove(new Entry(directory, entry), removeDirectory));
        if (batch.length < BATCH) continue;
        await Promise.all(batch);
        batch = [];
      }
    } catch (error) {
      this.#keep('a directory', error);
    }
    await Promise.all(batch);
  }

  async #remove(entry: Entry, removeDirectory: (entry: Entry) => Promise<boolean>): Promise<void> {
    try {
      if (!entry.isDirectory) await unlink(entry.path);
      // A mount point is busy, and not entered.
      else if ((await removeEmpty(entry.path)) === 'full' && !(await removeDirectory(entry))) return;
      this.hasProgress = true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') this.#keep(entry.shown, error);
    }
  }

  /** Whether it has gone; what is left in it has another pass. */
  async #removeAtTop(entry: Entry): Promise<boolean> {
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

  /** Its owner needs the right to write to a directory to move it. */
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

  #keep(name: string, error: unknown): void {
    const { code, syscall, message } = error as NodeJS.ErrnoException;
    this.left ??= `${name}: ${code === undefined ? message : `${code} (${syscall})`}`;
  }
}

/** Names are bytes: one that is not UTF-8 is a name too. */
const BUFFERS = { encoding: 'buffer' as BufferEncoding, bufferSize: BATCH };

class Entry {
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

/** Removes what is no directory, or an empty one. `full`: a directory that is not empty. */
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
