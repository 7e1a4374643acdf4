import { type FileHandle, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { sql, type Transaction } from 'kysely';
import { internal, resourceExhausted, type ServiceError, unavailable } from '../core/error.ts';
import type { Database, Tables } from './database.ts';

export interface DurableWrites {
  /**
   * Runs `work` in a transaction and returns when its commit would survive a power cut. Writes that wait at one moment share a
   * transaction and a flush of the disk. When `work` throws, nothing of it is written and its error comes through; the others
   * are not touched. Fails with
   * - `resource_exhausted` (nothing was written): too many writes are waiting;
   * - `unavailable`: the disk did not confirm within 30 s; `internal`: it failed. The write may be there or not.
   *
   * `work` may only await queries of its transaction, since everybody's queries wait for it, and may be run a second time after
   * the first was undone: it must have no other effects.
   */
  write<T>(work: (transaction: Transaction<Tables>) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

/** Returns when everything that was written to the write-ahead log before the call is on the disk. */
export type Flush = () => Promise<void>;

const MAX_WAITING = 10_000;
/** Writes in one transaction: everybody's queries wait for it. */
const MAX_GROUP = 64;
const FLUSH_TIMEOUT_MS = 30_000;

/**
 * Durable writes to the embedded database at `file`. Commits stay at `synchronous=NORMAL`, which only appends them to the
 * write-ahead log; here the log is flushed off the event loop, so that a slow disk delays its own writers and nobody's call.
 * (`synchronous=FULL` does the same flush inside each commit, on the event loop.) At the next open, SQLite takes every whole
 * commit of the log.
 */
export async function openDurableWrites(database: Database, file: string): Promise<DurableWrites> {
  if (file === ':memory:') return new GroupedWrites(database, async () => {}, noop);
  // The names of the files have to last too.
  const directory = await open(dirname(file), 'r');
  await directory.sync().finally(() => directory.close());
  const log: FileHandle = await open(`${file}-wal`, 'r+');
  return new GroupedWrites(
    database,
    () => log.datasync(),
    () => log.close(),
  );
}

async function noop(): Promise<void> {}

type Work<T> = (transaction: Transaction<Tables>) => Promise<T>;

/** A write that waits for its turn. */
interface Waiting {
  readonly work: Work<unknown>;
  readonly done: (result: unknown) => void;
  readonly fail: (error: unknown) => void;
}

/** Exported for tests, which bring a flush of their own. */
export class GroupedWrites implements DurableWrites {
  readonly #database: Database;
  readonly #flush: Flush;
  readonly #release: () => Promise<void>;
  #queue: Waiting[] = [];
  #isRunning = false;
  /** Writes that were taken in and have not been answered. */
  #pending = 0;
  /** After a failed flush the disk's word counts for nothing: what it once dropped, a later success does not bring back. */
  #failure: ServiceError | undefined;

  constructor(database: Database, flush: Flush, release: () => Promise<void>) {
    this.#database = database;
    this.#flush = flush;
    this.#release = release;
  }

  async write<T>(work: Work<T>): Promise<T> {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#pending >= MAX_WAITING) {
      throw resourceExhausted(`${MAX_WAITING} writes are waiting for the disk`, { retryAfterSeconds: 1 });
    }
    return this.#enqueue(work);
  }

  /** Waits for the writes that were taken in. */
  async close(): Promise<void> {
    // Writes are answered in order, so behind this one there is none.
    await this.#enqueue(noop).catch(noop);
    await this.#release();
  }

  async #enqueue<T>(work: Work<T>): Promise<T> {
    this.#pending += 1;
    try {
      return await new Promise<T>((done, fail) => {
        this.#queue.push({ work, done: done as Waiting['done'], fail });
        this.#schedule();
      });
    } finally {
      this.#pending -= 1;
    }
  }

  /** A group begins at the end of a turn, so that all of what arrived in it is in one transaction. */
  #schedule(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    setImmediate(async () => {
      const group = this.#queue.splice(0, MAX_GROUP);
      try {
        const outcomes = await this.#commit(group);
        await this.#flushed();
        for (const [index, outcome] of outcomes.entries()) answer(group[index] as Waiting, outcome);
      } catch (error) {
        for (const { fail } of group) fail(error);
      }
      this.#isRunning = false;
      if (this.#queue.length > 0) this.#schedule();
    });
  }

  /**
   * All works in one transaction. That one of them throws is rare, so only then does each get a savepoint, in a second try; a work
   * can be run twice, since nothing of the first try remains.
   */
  async #commit(group: readonly Waiting[]): Promise<Outcome[]> {
    try {
      return await this.#database.transaction().execute(async transaction => {
        const outcomes: Outcome[] = [];
        for (const { work } of group) outcomes.push({ result: await work(transaction) });
        return outcomes;
      });
    } catch (error) {
      if (group.length === 1) return [{ error }];
      return this.#commitEach(group);
    }
  }

  async #commitEach(group: readonly Waiting[]): Promise<Outcome[]> {
    return this.#database.transaction().execute(async transaction => {
      const outcomes: Outcome[] = [];
      for (const { work } of group) {
        await SAVE.execute(transaction);
        try {
          outcomes.push({ result: await work(transaction) });
        } catch (error) {
          await UNDO.execute(transaction);
          outcomes.push({ error });
        }
        await RELEASE.execute(transaction);
      }
      return outcomes;
    });
  }

  async #flushed(): Promise<void> {
    const slow = unavailable(`the disk did not confirm a write within ${FLUSH_TIMEOUT_MS / 1000} s`);
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(slow), FLUSH_TIMEOUT_MS);
    });
    try {
      await Promise.race([this.#flush(), timeout]);
    } catch (error) {
      if (error !== slow) {
        const text = 'the database could not be flushed to the disk; the service has to be started again';
        this.#failure = internal(text, { cause: error });
      }
      // Who waits behind this group would wait as long again.
      for (const { fail } of this.#queue.splice(0)) fail(this.#failure ?? slow);
      throw this.#failure ?? slow;
    } finally {
      clearTimeout(timer);
    }
  }
}

type Outcome = { readonly result: unknown } | { readonly error: unknown };

function answer({ done, fail }: Waiting, outcome: Outcome): void {
  if ('error' in outcome) fail(outcome.error);
  else done(outcome.result);
}

const SAVE = sql`savepoint write`;
const UNDO = sql`rollback to savepoint write`;
const RELEASE = sql`release savepoint write`;
