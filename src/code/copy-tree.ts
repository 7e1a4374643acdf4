import { constants } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, readlink, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { failedPrecondition, type ServiceError } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { type OpenedPath, openEntry } from '../lib/opened-path.ts';

export interface CopyLimits {
  /** Bytes of all files together. */
  readonly maxBytes: number;
  /** Files, directories and links. */
  readonly maxEntries: number;
}

const CHUNK_BYTES = 256 * 1024;
/** Permission bit for other users. Without it, the owner of the original decides who may read the copy. */
const READABLE_BY_ALL = 0o004;
const PERMISSIONS = 0o777;

/**
 * Copies the opened directory to `target`, a new path in a directory that only the service can access. Each
 * step starts at a descriptor and follows no link, so a concurrent swap has no effect. Links are copied as
 * links and not resolved. Set-user-id bits are not copied, and other kinds of files are refused. Files that
 * are not world-readable keep their owner, so that code can read exactly the files that it could read in the
 * original. Fails with `failed_precondition`, or with an error of the file system.
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
    await applyOwnership(made, source);
  }

  async #entry(directory: OpenedPath, entry: string, target: string, name: string, depth: number): Promise<void> {
    const opened = await openEntry(directory, entry);
    // The entry was removed after the listing.
    if (opened === null) return;
    try {
      if (opened.kind === 'directory') await this.directory(opened, target, name, depth + 1);
      else if (opened.kind === 'file') await this.#file(opened, target);
      else if ((opened.mode & constants.S_IFMT) === constants.S_IFLNK) {
        const leadsTo = await readlink(`${directory.link}/${entry}`).catch(() => null);
        // Null: the link was replaced or removed meanwhile, and is skipped like a removed entry.
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
        // Count the bytes read: a file may grow, or report a wrong size.
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
      await applyOwnership(to, source);
    } finally {
      await from.close();
    }
  }
}

/** Sets owner and permissions last, because until then no other user can open the copy. */
async function applyOwnership(made: FileHandle, { uid, gid, mode }: OpenedPath): Promise<void> {
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
