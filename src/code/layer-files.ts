import type { Dirent } from 'node:fs';
import { lstat, mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { failedPrecondition } from '../core/error.ts';
import type { MountSpec } from '../core/instance.ts';

/** Largest number of files and directories at the top of all layers of a function: each is a mount. */
const MAX_MOUNTS = 32;
/** Directory of the platform below the same target. */
const RESERVED = 'rookery';

/**
 * Moves the files of `from` into `to`, where they replace files of the same names. Directories of the same
 * name are joined. Links are moved and never followed.
 */
export async function moveOver(from: string, to: string): Promise<void> {
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const source = join(from, entry.name);
    const target = join(to, entry.name);
    if (!entry.isDirectory()) {
      await rm(target, { recursive: true, force: true });
      await rename(source, target);
      continue;
    }
    const before = await lstat(target).catch(() => null);
    if (before !== null && !before.isDirectory()) await rm(target);
    await mkdir(target, { recursive: true });
    await moveOver(source, target);
  }
}

/**
 * Returns the mounts that show the top files and directories of `directory` below `target`, beside those that
 * the sandbox has there. `withFiles` false: only directories can be mounted. Fails with
 * `failed_precondition`.
 */
export async function mountsBelow(
  directory: string,
  target: string,
  withFiles: boolean,
): Promise<readonly MountSpec[]> {
  const entries = await readdir(directory, { withFileTypes: true });
  const wrong = entries.map(entry => problemOf(entry, withFiles)).find(problem => problem !== null);
  if (wrong !== undefined) throw failedPrecondition(`a layer is refused: ${wrong}`);
  if (entries.length > MAX_MOUNTS) {
    const found = `they have ${entries.length} files and directories at their top, at most ${MAX_MOUNTS} are possible`;
    throw failedPrecondition(`the layers are refused: ${found}`);
  }
  return entries.map(({ name }) => ({ source: join(directory, name), target: `${target}/${name}`, readonly: true }));
}

function problemOf(entry: Dirent, withFiles: boolean): string | null {
  if (entry.name === RESERVED) return `the name "${RESERVED}" at its top is reserved`;
  if (entry.isSymbolicLink()) return `"${entry.name}" at its top is a link, expected a directory or a file`;
  if (withFiles || entry.isDirectory()) return null;
  return `"${entry.name}" at its top is a file, and pods show only directories`;
}
