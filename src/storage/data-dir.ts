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
  /** What the operator should know of how it was found. */
  readonly notices: readonly string[];
  /**
   * A UUID that stays with the directory: rows of this node carry it. `known` are those that the rows carry. Fails with
   * `failed_precondition` when the rows are all another node's: whoever begins so disowns everything that runs.
   */
  nodeId(known: readonly string[]): Promise<string>;
  /** From now on things are written: the directory is watched, and `onLost` is called once when its files go. */
  begin(onLost: (problem: string) => void): Promise<void>;
  /** What is wrong with the directory; null while all is well. */
  problem(): string | null;
  /**
   * Everything that was written is in the database's own file, and nothing more comes: from now on the service was not killed, whatever ends
   * it. To be called before the write-ahead log goes.
   */
  end(): Promise<void>;
  /** `isWhole`: everything that was written is in the database's own file, and its write-ahead log is empty. */
  release(isWhole?: boolean): void;
}

/** `hasDatabase`: the records are in it. Else they are in a PostgreSQL, and the directory has what belongs to this machine. */
export interface DataDirUse {
  readonly hasDatabase: boolean;
}

/**
 * Makes the directory when it is missing and takes it for this process. Only its owner may enter it, and only the owner may read what is in it.
 * Fails with `failed_precondition` when another service has it, when it cannot be made or written, when others could change it, or when
 * files of an earlier service are missing.
 *
 * The lock is SQLite's own on a file of its own: the kernel lets go of it when the process ends, however it ends. Deleting that file
 * lets no second service in: the directory names the process that runs, and that process takes the lock again.
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

/** The same whatever is missing in it: for those who repair it. */
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
  /** A process that ends by itself, however it comes to that, closes its database: nothing is missing then. */
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

  async begin(onLost: (problem: string) => void): Promise<void> {
    await this.#mark();
    process.once('exit', this.#onExit);
    this.#watch = new DataDirWatch({
      path: this.path,
      // With the records elsewhere only the node's identity must last here.
      files: this.#use.hasDatabase ? [this.databaseFile, `${this.databaseFile}-wal`] : [join(this.path, NODE_ID)],
      onLost,
      repair: async () => {
        if (fileAt(join(this.path, RUNNING)) === null) await this.#mark();
        return this.#lock.takeAgain();
      },
    });
    await this.#watch.look();
  }

  problem(): string | null {
    return this.#watch?.problem() ?? null;
  }

  async end(): Promise<void> {
    // A look that is under way could put the mark back.
    await this.#watch?.close();
    if (this.problem() === null) this.#unmark();
  }

  release(isWhole = false): void {
    void this.#watch?.close();
    process.off('exit', this.#onExit);
    if (isWhole && this.problem() === null) {
      this.#unmark();
      // SQLite would do it when its last connection closes, but a prepared statement of this binding keeps one until it is collected.
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

/** Whole or not at all. Fails with `failed_precondition`. */
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

class Lock {
  readonly #path: string;
  readonly #file: string;
  /** The last is the one at the path; those whose file was deleted cost nothing. */
  readonly #holders: InstanceType<typeof DatabaseSync>[] = [];
  #held: string | null = null;

  constructor(path: string) {
    this.#path = path;
    this.#file = join(path, LOCK);
    this.#take();
  }

  /** When its file was deleted: the one that is there now is locked too. Says why when somebody else has that. */
  takeAgain(): string | null {
    if (fileAt(this.#file) === this.#held) return null;
    try {
      this.#take();
      return null;
    } catch (error) {
      return messageOf(error);
    }
  }

  release(): void {
    for (const holder of this.#holders) holder.close();
  }

  #take(): void {
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
