import { randomUUID } from 'node:crypto';
import { constants, rmSync } from 'node:fs';
import { access, mkdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { DatabaseSync } from '@photostructure/sqlite';
import { failedPrecondition, messageOf } from '../core/error.ts';
import { ownName } from '../lib/process-name.ts';
import { isDiskFull } from '../lib/system-errors.ts';
import { DATABASE, LOCK, NODE_ID, RUNNING, readFacts, whyNotBegin, whyNotGoOn } from './data-dir-facts.ts';
import { closeToOthers, makeOwnFile } from './data-dir-modes.ts';
import { DataDirWatch, fileAt } from './data-dir-watch.ts';

/** A data directory that belongs to this process until `release`. */
export interface DataDir {
  readonly path: string;
  readonly databaseFile: string;
  /** Notices for the operator about the state in which the directory was found. */
  readonly notices: readonly string[];
  /**
   * Returns the UUID of this node, which stays with the directory and which records of this node have.
   * `known` are the node ids in the records. Fails with `failed_precondition` when all records belong to
   * another node: starting would orphan everything that runs.
   */
  nodeId(known: readonly string[]): Promise<string>;
  /**
   * Marks the directory as in use and starts to watch it. Calls `onLost` once when its files are removed or
   * replaced.
   */
  startWatching(onLost: (problem: string) => void): Promise<void>;
  /** Returns the problem of the directory; null without one. */
  problem(): string | null;
  /**
   * Removes the mark of a running service, after all writes are in the database file. A later end of the
   * process then does not count as killed. Must be called before SQLite removes the write-ahead log.
   */
  end(): Promise<void>;
  /**
   * Releases the directory. `isWhole`: the database file has all writes, and its write-ahead log is empty.
   */
  release(isWhole?: boolean): void;
}

/**
 * `hasDatabase`: the directory has the records. Otherwise a PostgreSQL has them, and the directory has the
 * files of this machine.
 */
export interface DataDirUse {
  readonly hasDatabase: boolean;
}

/**
 * Creates the directory when it is missing and locks it for this process. Only its owner may enter it and
 * read its files. Fails with `failed_precondition` when
 * - another service uses it;
 * - it cannot be created or written;
 * - others could change it;
 * - files of an earlier service are missing.
 *
 * The lock is SQLite's own, on a separate file: the kernel releases it when the process ends in any way.
 * Deleting that file does not admit a second service: the directory names the running process, which locks
 * the new file again.
 */
export async function openDataDir(path: string, { hasDatabase }: DataDirUse = { hasDatabase: true }): Promise<DataDir> {
  const taken = await takeDataDir(path, { hasDatabase });
  try {
    const facts = await readFacts(path);
    const refusal = hasDatabase ? whyNotBegin(path, facts) : whyNotGoOn(path, facts);
    if (refusal !== null) throw failedPrecondition(refusal);
    // SQLite gives its other files the mode of this one.
    if (hasDatabase) await makeOwnFile(taken.databaseFile);
    return taken;
  } catch (error) {
    taken.release();
    throw error;
  }
}

/** Locks the directory as `openDataDir` does, but accepts missing files, for repair and recovery. */
export async function takeDataDir(path: string, use: DataDirUse = { hasDatabase: true }): Promise<DataDir> {
  try {
    await make(path);
  } catch (error) {
    throw failedPrecondition(`the data directory ${path} cannot be made: ${messageOf(error)}`, { cause: error });
  }
  await check(path);
  const notices = await closeToOthers(path);
  const lock = new Lock(path);
  try {
    if ((await readFacts(path)).runningPid !== null) throw isTaken(path);
    return new TakenDataDir(path, lock, notices, use);
  } catch (error) {
    lock.release();
    throw error;
  }
}

class TakenDataDir implements DataDir {
  readonly path: string;
  readonly databaseFile: string;
  readonly notices: readonly string[];
  readonly #lock: Lock;
  readonly #use: DataDirUse;
  #watch: DataDirWatch | undefined;
  /** A process that exits by itself closes its database, so no write is lost. */
  readonly #onExit = () => this.#unmark();

  constructor(path: string, lock: Lock, notices: readonly string[], use: DataDirUse) {
    this.path = path;
    this.#use = use;
    this.notices = notices;
    this.databaseFile = join(path, DATABASE);
    this.#lock = lock;
  }

  async nodeId(known: readonly string[]): Promise<string> {
    const { nodeId } = await readFacts(this.path);
    if (nodeId !== null && (known.length === 0 || known.includes(nodeId))) return nodeId;
    if (known.length === 0) return await writeNodeId(this.path, randomUUID());
    const what = nodeId === null ? 'is missing or empty' : `says ${nodeId}`;
    throw failedPrecondition(
      `${NODE_ID} of the data directory ${this.path} ${what}, and what is in the database belongs to the node ${known.join(', ')}: put the file back, or let \`rookery recover --data-dir ${this.path}\` do it`,
    );
  }

  async startWatching(onLost: (problem: string) => void): Promise<void> {
    await this.#mark();
    process.once('exit', this.#onExit);
    this.#watch = new DataDirWatch({
      path: this.path,
      // With a PostgreSQL only the node's identity must last here.
      files: this.#use.hasDatabase ? [this.databaseFile, `${this.databaseFile}-wal`] : [join(this.path, NODE_ID)],
      onLost,
      repair: async () => {
        if (fileAt(join(this.path, RUNNING)) === null) await this.#mark();
        return this.#lock.lockAgain();
      },
    });
    await this.#watch.check();
  }

  problem(): string | null {
    return this.#watch?.problem() ?? null;
  }

  async end(): Promise<void> {
    // A running check could restore the mark.
    await this.#watch?.close();
    if (this.problem() === null) this.#unmark();
  }

  release(isWhole = false): void {
    void this.#watch?.close();
    process.off('exit', this.#onExit);
    if (isWhole && this.problem() === null) {
      this.#unmark();
      // SQLite removes them when its last connection closes. A prepared statement of this binding keeps a
      // connection until garbage collection.
      for (const end of ['-wal', '-shm']) rmSync(`${this.databaseFile}${end}`, { force: true });
    }
    this.#lock.release();
  }

  async #mark(): Promise<void> {
    await replace(join(this.path, RUNNING), JSON.stringify(ownName()));
  }

  #unmark(): void {
    rmSync(join(this.path, RUNNING), { force: true });
  }
}

export async function writeNodeId(path: string, nodeId: string): Promise<string> {
  await replace(join(path, NODE_ID), `${nodeId}\n`);
  return nodeId;
}

/** Replaces a file atomically. Fails with `failed_precondition`. */
async function replace(file: string, text: string): Promise<void> {
  try {
    await writeFile(`${file}.new`, text, { mode: 0o600 });
    await rename(`${file}.new`, file);
  } catch (error) {
    await rm(`${file}.new`, { force: true }).catch(() => undefined);
    const why = isDiskFull(error) ? 'the disk is full; make room, and start the service again' : messageOf(error);
    throw failedPrecondition(`${basename(file)} of the data directory ${dirname(file)} cannot be written: ${why}`, {
      cause: error,
    });
  }
}

function isTaken(path: string, cause?: unknown) {
  return failedPrecondition(
    `the data directory ${path} belongs to another running service; stop that one, or choose another with --data-dir`,
    cause === undefined ? {} : { cause },
  );
}

/**
 * Creates a directory and its missing parents. Node's own `recursive` never ends where nothing can be created
 * (below /proc).
 */
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

/** Checks the directory first, since SQLite would only report that it cannot open a file. */
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

class Lock {
  readonly #path: string;
  readonly #file: string;
  /** The last one locks the file at the path. Those of deleted files stay open at no cost. */
  readonly #holders: InstanceType<typeof DatabaseSync>[] = [];
  #held: string | null = null;

  constructor(path: string) {
    this.#path = path;
    this.#file = join(path, LOCK);
    this.#lock();
  }

  /**
   * Locks the file at the path again if the locked one was deleted. Returns null on success, else the reason:
   * another process has the lock, or the file is unusable.
   */
  lockAgain(): string | null {
    if (fileAt(this.#file) === this.#held) return null;
    try {
      this.#lock();
      return null;
    } catch (error) {
      return messageOf(error);
    }
  }

  release(): void {
    for (const holder of this.#holders) holder.close();
  }

  #lock(): void {
    let holder: InstanceType<typeof DatabaseSync> | undefined;
    try {
      holder = new DatabaseSync(this.#file);
      holder.exec('PRAGMA busy_timeout = 0; BEGIN EXCLUSIVE');
      this.#holders.push(holder);
      this.#held = fileAt(this.#file);
    } catch (error) {
      holder?.close();
      if (messageOf(error).includes('locked')) throw isTaken(this.#path, error);
      throw failedPrecondition(`the data directory ${this.#path} cannot be used: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }
}
