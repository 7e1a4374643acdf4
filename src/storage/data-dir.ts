import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import {
  access,
  chmod,
  type FileHandle,
  mkdir,
  open,
  readdir,
  readFile,
  realpath,
  rename,
  stat,
  writeFile,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { DatabaseSync } from '@photostructure/sqlite';
import { failedPrecondition, messageOf } from '../core/error.ts';

/** A data directory that belongs to this process until `release`. */
export interface DataDir {
  readonly path: string;
  /** A UUID that stays with the directory: rows of this node carry it. */
  readonly nodeId: string;
  readonly databaseFile: string;
  /** What the operator should know of how it was found. */
  readonly notices: readonly string[];
  release(): void;
}

/**
 * Makes the directory when it is missing and takes it for this process. Only its owner may enter it, and only the owner may read what is in it.
 * Fails with `failed_precondition` when another service has it, when it cannot be made or written, or when others could change it.
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
  const notices = await close(path);
  const release = lock(path);
  try {
    return { notices, path, nodeId: await nodeIdOf(path), databaseFile: join(path, DATABASE), release };
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

/** Takes it from everybody else: environments of instances stand in its database in clear. */
async function close(path: string): Promise<string[]> {
  const notices: string[] = [];
  const place = await realpath(path);
  const [found, above] = await Promise.all([stat(place), stat(dirname(place))]);
  const own = process.geteuid?.() ?? found.uid;
  if (found.uid !== own) {
    throw failedPrecondition(
      `the data directory ${path} belongs to uid ${found.uid} and this service runs as uid ${own}: give it to this user (chown), or choose another with --data-dir`,
    );
  }
  if ((above.mode & OTHERS_WRITE) !== 0 && (above.mode & STICKY) === 0) {
    throw failedPrecondition(
      `the data directory ${path} is in ${dirname(place)}, where everybody may put another in its place: take that right away (chmod o-w), or choose another with --data-dir`,
    );
  }
  const names = await readdir(place);
  const mode = (found.mode & 0o7777).toString(8);
  if ((found.mode & 0o077) !== 0) {
    if (!names.every(name => name === 'lost+found') && !OWN_FILES.some(name => names.includes(name))) {
      throw failedPrecondition(
        `the data directory ${path} is open to other users (mode ${mode}) and holds what is not this service's: choose an empty one with --data-dir, or close it (chmod 700)`,
      );
    }
    await chmod(place, 0o700);
    notices.push(`the data directory ${path} was open to other users (mode ${mode}): it is closed to them now`);
  }
  // What an earlier service or SQLite has made takes the mode of the file beside which it stands.
  for (const name of new Set([...OWN_FILES, ...names])) {
    const isOwn = OWN_FILES.includes(name);
    if (isOwn || name.startsWith(`${DATABASE}-`)) await closeFile(join(place, name), isOwn);
  }
  return notices;
}

const DATABASE = 'rookery.db';
const LOCK = 'lock';
const OWN_FILES: readonly string[] = [DATABASE, LOCK];
const OTHERS_WRITE = 0o002;
const STICKY = 0o1000;

/** Makes the file when it is missing and wanted. */
async function closeFile(path: string, isWanted: boolean): Promise<void> {
  const flags = constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK | (isWanted ? constants.O_CREAT : 0);
  let file: FileHandle;
  try {
    file = await open(path, flags, 0o600);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw failedPrecondition(`the file ${path} cannot be used: ${messageOf(error)}`, { cause: error });
  }
  try {
    await file.chmod(0o600);
  } finally {
    await file.close();
  }
}

function lock(path: string): () => void {
  let holder: InstanceType<typeof DatabaseSync> | undefined;
  try {
    holder = new DatabaseSync(join(path, LOCK));
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
  await writeFile(`${file}.new`, `${nodeId}\n`, { mode: 0o600 });
  await rename(`${file}.new`, file);
  return nodeId;
}
