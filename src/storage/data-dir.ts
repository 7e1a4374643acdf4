import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { access, mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { DatabaseSync } from '@photostructure/sqlite';
import { failedPrecondition, messageOf } from '../core/error.ts';

/** A data directory that belongs to this process until `release`. */
export interface DataDir {
  readonly path: string;
  /** A UUID that stays with the directory: rows of this node carry it. */
  readonly nodeId: string;
  readonly databaseFile: string;
  release(): void;
}

/**
 * Makes the directory when it is missing (only its owner may enter it) and takes it for this process.
 * Fails with `failed_precondition` when another service has it, or when it cannot be made or written.
 *
 * The lock is SQLite's own on a file of its own: the kernel lets go of it when the process ends, however it ends.
 */
export async function openDataDir(path: string): Promise<DataDir> {
  try {
    await make(path);
  } catch (error) {
    throw failedPrecondition(`the data directory ${path} cannot be made: ${messageOf(error)}`, { cause: error });
  }
  await check(path);
  const release = lock(path);
  try {
    return { path, nodeId: await nodeIdOf(path), databaseFile: join(path, 'rookery.db'), release };
  } catch (error) {
    release();
    throw failedPrecondition(`the data directory ${path} cannot be used: ${messageOf(error)}`, { cause: error });
  }
}

/** With what is missing above it. Not by Node's own `recursive`, which never ends where nothing can be made (below /proc). */
async function make(path: string): Promise<void> {
  const above = dirname(path);
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    if (code !== 'ENOENT' || above === path || (await isThere(above))) throw error;
    await make(above);
    await make(path);
  }
}

async function isThere(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  );
}

/** What SQLite would only call a file that it cannot open. */
async function check(path: string): Promise<void> {
  const found = await stat(path).catch(() => null);
  if (!found?.isDirectory()) {
    throw failedPrecondition(`the data directory ${path} is not a directory; choose another with --data-dir`);
  }
  try {
    await access(path, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw failedPrecondition(
      `the data directory ${path} must be one that this user (uid ${process.getuid?.() ?? '?'}) may read and write: ${messageOf(error)}; choose another with --data-dir`,
      { cause: error },
    );
  }
}

function lock(path: string): () => void {
  let holder: InstanceType<typeof DatabaseSync> | undefined;
  try {
    holder = new DatabaseSync(join(path, 'lock'));
    holder.exec('PRAGMA busy_timeout = 0; BEGIN EXCLUSIVE');
  } catch (error) {
    holder?.close();
    const isTaken = messageOf(error).includes('locked');
    throw failedPrecondition(
      isTaken
        ? `the data directory ${path} belongs to another running service; stop that one, or choose another with --data-dir`
        : `the data directory ${path} cannot be used: ${messageOf(error)}`,
      { cause: error },
    );
  }
  const taken = holder;
  return () => taken.close();
}

async function nodeIdOf(path: string): Promise<string> {
  const file = join(path, 'node-id');
  const known = await readFile(file, 'utf8').catch(() => '');
  if (known.trim() !== '') return known.trim();
  const nodeId = randomUUID();
  await writeFile(`${file}.new`, `${nodeId}\n`);
  await rename(`${file}.new`, file);
  return nodeId;
}
