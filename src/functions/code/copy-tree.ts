import { constants } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, readlink, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { failedPrecondition, type ServiceError } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { type OpenedPath, openEntry } from '../../lib/opened-path.ts';

export interface CopyLimits {
  /** Of all files together. */
  readonly maxBytes: number;
  /** Files, directories and links. */
  readonly maxEntries: number;
}

const CHUNK_BYTES = 256 * 1024;
/** Bits that everybody has: without the one for the rest of the world, who may read it is up to its owner. */
const READABLE_BY_ALL = 0o004;
const PERMISSIONS = 0o777;

/**
 * Copies the opened directory to `target`, which does not exist, in a directory that is the service's alone. Every step begins at a descriptor and
 * follows no link, so that what is swapped meanwhile leads nowhere. Links are copied as links: what they lead to is the copy's only if
 * it can reach it by itself. Bits that give a program another user are not copied, other kinds of files are refused. What not
 * everybody may read stays its owner's: code reads of a copy what it would read of the directory itself.
 * Fails with `failed_precondition`, or as the file system does.
 */
export async function copyTree(source: OpenedPath, target: string, limits: CopyLimits): Promise<void> {
  await new Copy(limits).directory(source, target, '', 0);
}

class Copy {
  readonly #limits: CopyLimits;
  readonly #chunk = Buffer.allocUnsafe(CHUNK_BYTES);
  #bytes = 0;
  #entries = 0;

  constructor(limits: CopyLimits) {
    this.#limits = limits;
  }

  async directory(source: OpenedPath, target: string, name: string, depth: number): Promise<void> {
    if (depth > LIMITS.treeDepth) throw refuse(name, `is more than ${LIMITS.treeDepth} directories deep`);
    await mkdir(target, { mode: 0o700 });
    for (const entry of await readdir(source.link)) {
      this.#entries += 1;
      if (this.#entries > this.#limits.maxEntries) {
        throw failedPrecondition(`there are more than ${this.#limits.maxEntries} files and directories`);
      }
      await this.#entry(source, entry, join(target, entry), name === '' ? entry : `${name}/${entry}`, depth);
    }
    const made = await open(target, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    await settle(made, source);
  }

  async #entry(directory: OpenedPath, entry: string, target: string, name: string, depth: number): Promise<void> {
    const opened = await openEntry(directory, entry);
    // It has gone since it was listed.
    if (opened === null) return;
    try {
      if (opened.kind === 'directory') await this.directory(opened, target, name, depth + 1);
      else if (opened.kind === 'file') await this.#file(opened, target);
      else if ((opened.mode & constants.S_IFMT) === constants.S_IFLNK) {
        const leadsTo = await readlink(`${directory.link}/${entry}`).catch(() => null);
        // Null: it was another thing by then, and has gone like one that was not there any more.
        if (leadsTo !== null) await symlink(leadsTo, target);
      } else throw refuse(name, 'is neither a file nor a directory nor a link');
    } finally {
      await opened.close();
    }
  }

  async #file(source: OpenedPath, target: string): Promise<void> {
    const from = await open(source.link, constants.O_RDONLY);
    try {
      const to = await open(target, 'wx', 0o600);
      try {
        // Counted as it comes: a file may grow, or say that it is larger than it is.
        for (;;) {
          const { bytesRead } = await from.read(this.#chunk, 0, CHUNK_BYTES);
          if (bytesRead === 0) break;
          this.#bytes += bytesRead;
          if (this.#bytes > this.#limits.maxBytes)
            throw failedPrecondition(`it is larger than ${this.#limits.maxBytes} bytes`);
          await to.writeFile(this.#chunk.subarray(0, bytesRead));
        }
      } catch (error) {
        await to.close();
        throw error;
      }
      await settle(to, source);
    } finally {
      await from.close();
    }
  }
}

/** Gives what was made its owner and its permissions, last: until then nobody else can open it. */
async function settle(made: FileHandle, { uid, gid, mode }: OpenedPath): Promise<void> {
  try {
    if ((mode & READABLE_BY_ALL) === 0 && process.geteuid?.() === 0) await made.chown(uid, gid);
    await made.chmod(mode & PERMISSIONS);
  } finally {
    await made.close();
  }
}

function refuse(name: string, why: string): ServiceError {
  return failedPrecondition(`${JSON.stringify(name)} ${why}`);
}
