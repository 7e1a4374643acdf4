import { fdatasyncSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { sql } from 'kysely';
import { internal, resourceExhausted, ServiceError, unavailable } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import { flushDirectory } from '../../lib/file-writes.ts';
import type { Database, WriteTransaction } from '../database.ts';

export interface DurableWrites {
  /**
   * Runs `operation` in a transaction and returns when its commit would survive a power cut. Concurrent
   * writes share a transaction and a flush of the disk. When `operation` throws, its changes are rolled back
   * and the caller gets its error; other writes are unaffected. Fails with
   * - `resource_exhausted` (nothing was written): too many writes are waiting;
   * - `unavailable`: the disk is full (nothing was written), or did not confirm within 30 s;
   * - `internal`: the flush failed.
   * Unless nothing was written, the write may exist or not.
   *
   * `operation` may only await queries of its transaction, since all other queries wait for it. It may run a
   * second time after a rollback, so it must have no other effects. It may run in another thread
   * (`storage/write-client.ts`), so arguments and result are plain data, and it may use no other data.
   */
  write<A extends readonly unknown[], R>(operation: WriteOperation<A, R>, ...args: A): Promise<R>;
  /** Returns why no write succeeds until the service is restarted; null when writes work. */
  problem(): string | null;
  close(): Promise<void>;
}

/** The changes of a transaction. */
export type WriteOperation<A extends readonly unknown[], R> = (transaction: WriteTransaction, ...args: A) => Promise<R>;

/** Flushes to the disk everything that was written to the write-ahead log before the call. */
export type Flush = () => Promise<void>;

const MAX_WAITING = 10_000;
/** Most writes in one transaction, since all queries wait for it. */
const MAX_GROUP = 64;
const FLUSH_TIMEOUT_MS = 30_000;
/**
 * Most flushes at once. A disk does several almost as fast as one, and a writer need not wait for an earlier
 * flush. Less than Node's 4 threads for files, so that a slow disk does not block all other reads of files.
 */
const MAX_FLUSHES = 3;
/** Longest flush that may run on this thread, where other writes wait for it. */
const FAST_FLUSH_MS = 2;

/**
 * Opens durable writes to the embedded database at `file`. Commits use `synchronous=NORMAL`, which only
 * appends them to the write-ahead log. One flush of the log confirms a whole group, so a slow disk delays
 * writers but no reads. (`synchronous=FULL` makes the same flush in each commit.) At the next open, SQLite
 * applies every complete commit of the log.
 */
export async function openDurableWrites(database: Database, file: string): Promise<DurableWrites> {
  if (file === ':memory:') return new GroupedWrites(database, async () => {}, noop);
  // The directory entries of the files must survive a power cut too.
  await flushDirectory(dirname(file));
  // One descriptor per flush: the kernel reports a disk error once per descriptor. Each flush therefore sees
  // the error itself.
  const logs = await Promise.all(Array.from({ length: MAX_FLUSHES }, () => open(`${file}-wal`, 'r+')));
  return new GroupedWrites(database, flushOf(logs), async () => {
    await Promise.all(logs.map(log => log.close()));
  });
}

/**
 * Creates a flush that runs on this thread while the disk is fast. Waiting for one of Node's threads would
 * take longer. While the disk is slow, flushes run in parallel on other threads.
 */
function flushOf(logs: readonly FileHandle[]): Flush {
  const free = [...logs];
  let isFast = false;
  return async () => {
    const startMs = performance.now();
    const log = free.pop();
    // Happens only when timed-out flushes still use all descriptors.
    if (log === undefined) await (logs[0] as FileHandle).datasync();
    else if (isFast) {
      free.push(log);
      fdatasyncSync(log.fd);
    } else await log.datasync().finally(() => free.push(log));
    isFast = performance.now() - startMs < FAST_FLUSH_MS;
  };
}

async function noop(): Promise<void> {}

/** A queued write. */
interface QueuedWrite {
  readonly operation: (transaction: WriteTransaction) => Promise<unknown>;
  readonly done: (result: unknown) => void;
  readonly fail: (error: unknown) => void;
}

/** Exported for tests, which supply their own flush. */
export class GroupedWrites implements DurableWrites {
  readonly #database: Database;
  readonly #flush: Flush;
  readonly #release: () => Promise<void>;
  readonly #maxFlushes: number;
  readonly #flushes = new Set<Promise<void>>();
  #queue: QueuedWrite[] = [];
  #isCommitting = false;
  /** Writes that were accepted and have no answer yet. */
  #pending = 0;
  /**
   * The first failed flush. Later successes do not count: they do not restore the writes that the disk
   * dropped.
   */
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

  /** Waits for the accepted writes. */
  async close(): Promise<void> {
    // Writes are committed in order: after this one, only flushes can still be running.
    await this.#enqueue(noop).catch(noop);
    await Promise.all(this.#flushes);
    await this.#release();
  }

  async #enqueue<T>(operation: (transaction: WriteTransaction) => Promise<T>): Promise<T> {
    this.#pending += 1;
    try {
      return await new Promise<T>((done, fail) => {
        this.#queue.push({ operation, done: done as QueuedWrite['done'], fail });
        this.#schedule();
      });
    } finally {
      this.#pending -= 1;
    }
  }

  /** Starts a group at the end of an event loop turn. All writes of the turn then share a transaction. */
  #schedule(): void {
    if (this.#isCommitting || this.#flushes.size >= this.#maxFlushes || this.#queue.length === 0) return;
    this.#isCommitting = true;
    setImmediate(async () => {
      const group = this.#queue.splice(0, MAX_GROUP);
      const outcomes = await this.#commit(group).catch((error: unknown) => group.map((): WriteOutcome => ({ error })));
      const flush = this.#confirm(group, outcomes).finally(() => {
        this.#flushes.delete(flush);
        this.#schedule();
      });
      this.#flushes.add(flush);
      this.#isCommitting = false;
      this.#schedule();
    });
  }

  /** Answers the writes of a committed group after the flush. Never rejects. */
  async #confirm(group: readonly QueuedWrite[], outcomes: readonly WriteOutcome[]): Promise<void> {
    try {
      if (this.#failure !== undefined) throw this.#failure;
      await this.#flushed();
      if (this.#failure !== undefined) throw this.#failure;
      for (const [index, outcome] of outcomes.entries()) answer(group[index] as QueuedWrite, outcome);
    } catch (error) {
      for (const { fail } of group) fail(error);
    }
  }

  /**
   * Runs all write operations in one transaction. An error in one of them is rare, so savepoints are used
   * only in a second try. Operations can run twice, since the first try is rolled back.
   */
  async #commit(group: readonly QueuedWrite[]): Promise<WriteOutcome[]> {
    try {
      return await this.#database.transaction().execute(async transaction => {
        const outcomes: WriteOutcome[] = [];
        for (const { operation } of group) outcomes.push({ result: await operation(transaction) });
        return outcomes;
      });
    } catch (error) {
      // The disk refused the whole group.
      if (group.length === 1 || isRefusedByDisk(error)) return group.map(() => ({ error }));
      return this.#commitEach(group);
    }
  }

  async #commitEach(group: readonly QueuedWrite[]): Promise<WriteOutcome[]> {
    return this.#database.transaction().execute(async transaction => {
      const outcomes: WriteOutcome[] = [];
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
      // Also set when the flush fails after its timeout.
      this.#failure ??= internal(text, { cause: error });
      throw this.#failure;
    });
    try {
      await within(flush, FLUSH_TIMEOUT_MS, tooSlow);
    } catch (error) {
      // The queued writes would wait just as long.
      for (const { fail } of this.#queue.splice(0)) fail(error);
      throw error;
    }
  }
}

function tooSlow(): ServiceError {
  return unavailable(`the disk did not confirm a write within ${FLUSH_TIMEOUT_MS / 1000} s`);
}

/**
 * Returns true when the disk refused the write. SQLite has then ended the transaction, so no savepoint
 * remains.
 */
function isRefusedByDisk(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'unavailable';
}

type WriteOutcome = { readonly result: unknown } | { readonly error: unknown };

function answer({ done, fail }: QueuedWrite, outcome: WriteOutcome): void {
  if ('error' in outcome) fail(outcome.error);
  else done(outcome.result);
}

const SAVE = sql`savepoint write`;
const UNDO = sql`rollback to savepoint write`;
const RELEASE = sql`release savepoint write`;
