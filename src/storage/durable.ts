import { fdatasyncSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { sql } from 'kysely';
import { internal, resourceExhausted, ServiceError, unavailable } from '../core/error.ts';
import { within } from '../lib/deadline.ts';
import { flushDirectory } from '../lib/flush.ts';
import type { Database, WriteTransaction } from './database.ts';

export interface DurableWrites {
  /**
   * Runs `operation` in a transaction and returns when its commit would survive a power cut. Writes that wait at one moment share a
   * transaction and a flush of the disk. When `operation` throws, nothing of it is written and its error comes through; the others
   * are not touched. Fails with
   * - `resource_exhausted` (nothing was written): too many writes are waiting;
   * - `unavailable`: the disk is full (nothing was written), or did not confirm within 30 s; `internal`: it failed. Then the write may be
   *   there or not.
   *
   * `operation` may only await queries of its transaction, since everybody's queries wait for it, and may be run a second time after
   * the first was undone: it must have no other effects. It may run in another thread (`storage/write-client.ts`), so all that
   * it knows comes in as arguments, and arguments and result are plain data.
   */
  write<A extends readonly unknown[], R>(operation: WriteOperation<A, R>, ...args: A): Promise<R>;
  /** Why nothing is written any more until the service is started again; null while all is well. */
  problem(): string | null;
  close(): Promise<void>;
}

/** What is done in one transaction. */
export type WriteOperation<A extends readonly unknown[], R> = (transaction: WriteTransaction, ...args: A) => Promise<R>;

/** Returns when everything that was written to the write-ahead log before the call is on the disk. */
export type Flush = () => Promise<void>;

const MAX_WAITING = 10_000;
/** Writes in one transaction: everybody's queries wait for it. */
const MAX_GROUP = 64;
const FLUSH_TIMEOUT_MS = 30_000;
/**
 * Flushes at one time. A disk does several almost as fast as one, and writers need not wait for the flush before theirs. Less than
 * the threads that Node has for files (4), so that a slow disk does not hold up everything else that reads a file.
 */
const MAX_FLUSHES = 3;
/** As long as other writes may wait for a flush that is not theirs. */
const FAST_FLUSH_MS = 2;

/**
 * Durable writes to the embedded database at `file`. Commits stay at `synchronous=NORMAL`, which only appends them to the
 * write-ahead log; here the log is flushed once for a group, and a slow disk delays its own writers and nobody's query.
 * (`synchronous=FULL` does the same flush inside each commit.) At the next open, SQLite takes every whole commit of the log.
 */
export async function openDurableWrites(database: Database, file: string): Promise<DurableWrites> {
  if (file === ':memory:') return new GroupedWrites(database, async () => {}, noop);
  // The names of the files have to last too.
  await flushDirectory(dirname(file));
  // One for each flush: the kernel tells an error of the disk once to each of them, so that no other flush can take it away.
  const logs = await Promise.all(Array.from({ length: MAX_FLUSHES }, () => open(`${file}-wal`, 'r+')));
  return new GroupedWrites(database, flushOf(logs), async () => {
    await Promise.all(logs.map(log => log.close()));
  });
}

/**
 * A flush at once, on this thread, while the disk is fast: a thread of Node's own would be waited for longer than the disk. While
 * it is slow, the flushes leave this thread and run beside each other.
 */
function flushOf(logs: readonly FileHandle[]): Flush {
  const free = [...logs];
  let isFast = false;
  return async () => {
    const startMs = performance.now();
    const log = free.pop();
    // All are busy only after flushes that nobody waits for any more.
    if (log === undefined) await (logs[0] as FileHandle).datasync();
    else if (isFast) {
      free.push(log);
      fdatasyncSync(log.fd);
    } else await log.datasync().finally(() => free.push(log));
    isFast = performance.now() - startMs < FAST_FLUSH_MS;
  };
}

async function noop(): Promise<void> {}

/** A write that waits for its turn. */
interface Waiting {
  readonly operation: (transaction: WriteTransaction) => Promise<unknown>;
  readonly done: (result: unknown) => void;
  readonly fail: (error: unknown) => void;
}

/** Exported for tests, which bring a flush of their own. */
export class GroupedWrites implements DurableWrites {
  readonly #database: Database;
  readonly #flush: Flush;
  readonly #release: () => Promise<void>;
  readonly #maxFlushes: number;
  readonly #flushes = new Set<Promise<void>>();
  #queue: Waiting[] = [];
  #isCommitting = false;
  /** Writes that were taken in and have not been answered. */
  #pending = 0;
  /** After a failed flush no later success counts: it does not bring back the writes that the disk dropped. */
  #failure: ServiceError | undefined;

  constructor(database: Database, flush: Flush, release: () => Promise<void>, maxFlushes = MAX_FLUSHES) {
    this.#database = database;
    this.#maxFlushes = maxFlushes;
    this.#flush = flush;
    this.#release = release;
  }

  async write<A extends readonly unknown[], R>(operation: WriteOperation<A, R>, ...args: A): Promise<R> {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#pending >= MAX_WAITING) {
      throw resourceExhausted(`${MAX_WAITING} writes are waiting for the disk`, { retryAfterSeconds: 1 });
    }
    return this.#enqueue(transaction => operation(transaction, ...args));
  }

  problem(): string | null {
    return this.#failure?.message ?? null;
  }

  /** Waits for the writes that were taken in. */
  async close(): Promise<void> {
    // Writes are committed in order, so behind this one none is left but those whose flush takes longer.
    await this.#enqueue(noop).catch(noop);
    await Promise.all(this.#flushes);
    await this.#release();
  }

  async #enqueue<T>(operation: (transaction: WriteTransaction) => Promise<T>): Promise<T> {
    this.#pending += 1;
    try {
      return await new Promise<T>((done, fail) => {
        this.#queue.push({ operation, done: done as Waiting['done'], fail });
        this.#schedule();
      });
    } finally {
      this.#pending -= 1;
    }
  }

  /** A group begins at the end of a turn, so that all of what arrived in it is in one transaction. */
  #schedule(): void {
    if (this.#isCommitting || this.#flushes.size >= this.#maxFlushes || this.#queue.length === 0) return;
    this.#isCommitting = true;
    setImmediate(async () => {
      const group = this.#queue.splice(0, MAX_GROUP);
      const outcomes = await this.#commit(group).catch((error: unknown) => group.map((): Outcome => ({ error })));
      const flush = this.#confirm(group, outcomes).finally(() => {
        this.#flushes.delete(flush);
        this.#schedule();
      });
      this.#flushes.add(flush);
      this.#isCommitting = false;
      this.#schedule();
    });
  }

  /** Answers a group whose transaction is over once it is on the disk. Never rejects. */
  async #confirm(group: readonly Waiting[], outcomes: readonly Outcome[]): Promise<void> {
    try {
      if (this.#failure !== undefined) throw this.#failure;
      await this.#flushed();
      if (this.#failure !== undefined) throw this.#failure;
      for (const [index, outcome] of outcomes.entries()) answer(group[index] as Waiting, outcome);
    } catch (error) {
      for (const { fail } of group) fail(error);
    }
  }

  /**
   * All write operations in one transaction. That one of them throws is rare, so only then does each get a savepoint, in a second try; a write operation
   * can be run twice, since nothing of the first try remains.
   */
  async #commit(group: readonly Waiting[]): Promise<Outcome[]> {
    try {
      return await this.#database.transaction().execute(async transaction => {
        const outcomes: Outcome[] = [];
        for (const { operation } of group) outcomes.push({ result: await operation(transaction) });
        return outcomes;
      });
    } catch (error) {
      // The disk refused all of them.
      if (group.length === 1 || isRefusedByDisk(error)) return group.map(() => ({ error }));
      return this.#commitEach(group);
    }
  }

  async #commitEach(group: readonly Waiting[]): Promise<Outcome[]> {
    return this.#database.transaction().execute(async transaction => {
      const outcomes: Outcome[] = [];
      for (const { operation } of group) {
        await SAVE.execute(transaction);
        try {
          outcomes.push({ result: await operation(transaction) });
        } catch (error) {
          if (isRefusedByDisk(error)) throw error;
          await UNDO.execute(transaction);
          outcomes.push({ error });
        }
        await RELEASE.execute(transaction);
      }
      return outcomes;
    });
  }

  async #flushed(): Promise<void> {
    const flush = this.#flush().catch((error: unknown) => {
      const text = 'the database could not be flushed to the disk; the service has to be started again';
      // Also when it comes so late that nobody waits for this flush any more.
      this.#failure ??= internal(text, { cause: error });
      throw this.#failure;
    });
    try {
      await within(flush, FLUSH_TIMEOUT_MS, tooSlow);
    } catch (error) {
      // The writes behind this group would wait as long again.
      for (const { fail } of this.#queue.splice(0)) fail(error);
      throw error;
    }
  }
}

function tooSlow(): ServiceError {
  return unavailable(`the disk did not confirm a write within ${FLUSH_TIMEOUT_MS / 1000} s`);
}

/** The transaction is over then: there is no savepoint to go back to. */
function isRefusedByDisk(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'unavailable';
}

type Outcome = { readonly result: unknown } | { readonly error: unknown };

function answer({ done, fail }: Waiting, outcome: Outcome): void {
  if ('error' in outcome) fail(outcome.error);
  else done(outcome.result);
}

const SAVE = sql`savepoint write`;
const UNDO = sql`rollback to savepoint write`;
const RELEASE = sql`release savepoint write`;
