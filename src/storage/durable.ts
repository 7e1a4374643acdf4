import { type FileHandle, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Transaction } from 'kysely';
import { internal, resourceExhausted, unavailable } from '../core/error.ts';
import type { Database, Tables } from './database.ts';

export interface DurableWrites {
  /**
   * Runs `work` in one transaction and returns when its commit would survive a power cut. All writes that wait at one moment
   * share one flush of the disk. When `work` throws, nothing is written and its error comes through. Fails with
   * - `resource_exhausted` (nothing was written): too many writes are waiting;
   * - `unavailable`: the disk did not confirm within 30 s; `internal`: it failed. The write may be there or not.
   *
   * `work` may only await queries of its transaction: everybody's queries wait for it.
   */
  write<T>(work: (transaction: Transaction<Tables>) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

/** Returns when everything that was written to the write-ahead log before the call is on the disk. */
export type Flush = () => Promise<void>;

const MAX_WAITING = 10_000;
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

interface Batch {
  size: number;
  readonly done: Promise<void>;
  readonly settle: (error?: unknown) => void;
}

/** Exported for tests, which bring a flush of their own. */
export class GroupedWrites implements DurableWrites {
  readonly #database: Database;
  readonly #flush: Flush;
  readonly #release: () => Promise<void>;
  /** Commits that the next flush will cover. */
  #next: Batch | null = null;
  #flushing: Batch | null = null;
  #writing = 0;
  /** After a failed flush the disk's word counts for nothing: what it once dropped, a later success does not bring back. */
  #failure: unknown;

  constructor(database: Database, flush: Flush, release: () => Promise<void>) {
    this.#database = database;
    this.#flush = flush;
    this.#release = release;
  }

  async write<T>(work: (transaction: Transaction<Tables>) => Promise<T>): Promise<T> {
    if (this.#failure !== undefined) throw this.#failed();
    if (this.#writing + (this.#next?.size ?? 0) + (this.#flushing?.size ?? 0) >= MAX_WAITING) {
      throw resourceExhausted(`${MAX_WAITING} writes are waiting for the disk`, { retryAfterSeconds: 1 });
    }
    this.#writing += 1;
    let result: T;
    try {
      result = await this.#database.transaction().execute(work);
    } finally {
      this.#writing -= 1;
    }
    await this.#flushed();
    return result;
  }

  async close(): Promise<void> {
    await Promise.allSettled([this.#flushing?.done, this.#next?.done]);
    await this.#release();
  }

  #flushed(): Promise<void> {
    this.#next ??= createBatch();
    const batch = this.#next;
    batch.size += 1;
    if (this.#flushing === null) this.#startFlush();
    return batch.done;
  }

  #startFlush(): void {
    const batch = this.#next;
    if (batch === null) return;
    this.#next = null;
    this.#flushing = batch;
    this.#flush()
      .then(
        () => batch.settle(),
        error => {
          this.#failure = error ?? new Error('flush failed');
          batch.settle(this.#failed());
          this.#next?.settle(this.#failed());
          this.#next = null;
        },
      )
      .finally(() => {
        this.#flushing = null;
        this.#startFlush();
      });
  }

  #failed() {
    return internal('the database could not be flushed to the disk; the service has to be started again', {
      cause: this.#failure,
    });
  }
}

function createBatch(): Batch {
  let settle: Batch['settle'] = noop;
  const done = new Promise<void>((resolve, reject) => {
    const timer = setTimeout(
      () => reject(unavailable(`the disk did not confirm a write within ${FLUSH_TIMEOUT_MS / 1000} s`)),
      FLUSH_TIMEOUT_MS,
    );
    settle = error => {
      clearTimeout(timer);
      if (error === undefined) resolve();
      else reject(error);
    };
  });
  return { size: 0, done, settle };
}
