import type { MessagePort } from 'node:worker_threads';
import { CompiledQuery } from 'kysely';
import { internal, ServiceError } from '../../core/error.ts';
import { fileAt, lostSentence } from '../../data-dir/data-dir-watch.ts';
import { connect, type Database } from '../database.ts';
import { SHRINK } from '../sqlite.ts';
import { type DurableWrites, openDurableWrites, type WriteOperation } from './durable.ts';
import { type FromThread, type Order, type SentOutcome, sendError, type ToThread } from './write-messages.ts';

/** The write operations that an order can name. */
export type WriteOperations = Readonly<Record<string, WriteOperation<never, unknown>>>;

interface OpenDatabase {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly operations: WriteOperations;
}

/**
 * Runs in the write thread: applies the orders from `port` to the database at `file`, until the last message.
 * The database must exist with all migrations before the first message.
 */
export function serveWrites(port: MessagePort, file: string, operations: WriteOperations): void {
  const disk = new Disk(
    async () => {
      const { database } = await (opening as Promise<OpenDatabase>);
      await database.executeQuery(PROBE);
    },
    problem => port.postMessage({ outcomes: [], problem } satisfies FromThread),
  );
  const shrinking = new Shrinking(async () => {
    const { database } = await (opening as Promise<OpenDatabase>);
    return await shrink(database);
  });
  const answers = new Answers(port, disk, [file, `${file}-wal`]);
  const open = new Set<Promise<void>>();
  let opening: Promise<OpenDatabase> | undefined;
  port.on('message', async ({ orders, isLast }: ToThread) => {
    opening ??= openFor(file, operations).finally(() => answers.begin());
    const opened = await opening;
    shrinking.busy();
    for (const order of orders) {
      const done = run(order, opened)
        .then(
          result => {
            disk.took();
            answers.add([order[0], result], opened.writes);
          },
          (error: unknown) => {
            disk.refused(error);
            answers.add([order[0], null, sendError(error)], opened.writes);
          },
        )
        .then(() => void open.delete(done));
      open.add(done);
    }
    if (!isLast) return;
    await Promise.all(open);
    disk.close();
    shrinking.close();
    await opened.writes.close();
    // When the disk is full, the log stays as it is.
    await opened.database.executeQuery(CHECKPOINT).catch(() => undefined);
    await opened.database.destroy();
    answers.flush(opened.writes);
    port.close();
  });
}

async function openFor(file: string, operations: WriteOperations): Promise<OpenDatabase> {
  const database = connect(file);
  return { database, writes: await openDurableWrites(database, file), operations };
}

async function run(
  [, operation, what, parameters]: Order,
  { database, writes, operations }: OpenDatabase,
): Promise<unknown> {
  if (operation !== null)
    return await writes.write(operations[operation] as WriteOperation<readonly unknown[], unknown>, ...what);
  return await database.executeQuery(CompiledQuery.raw(what, [...(parameters ?? [])]));
}

const PROBE_MS = 2_000;
const IDLE_MS = 1_000;
/** Pause between two steps, in which new writes run first. */
const PAUSE_MS = 20;
/** Free pages that stay in the file for later writes. */
const KEPT_FREE_PAGES = 1024;
const FREE_PAGES = CompiledQuery.raw('pragma freelist_count');
const PASSIVE_CHECKPOINT = CompiledQuery.raw('pragma wal_checkpoint(passive)');
const CHECKPOINT = CompiledQuery.raw('pragma wal_checkpoint(truncate)');
/** Writes a page without changing anything. */
const PROBE = CompiledQuery.raw('pragma user_version = 0');

/**
 * Returns some free pages to the file system; true when more remain. The file shrinks when a checkpoint
 * writes the log into it.
 */
async function shrink(database: Database): Promise<boolean> {
  const free = async () => {
    const { rows } = await database.executeQuery<{ freelist_count: number }>(FREE_PAGES);
    return rows[0]?.freelist_count ?? 0;
  };
  const before = await free();
  if (before <= KEPT_FREE_PAGES) return false;
  await database.executeQuery(CompiledQuery.raw(SHRINK));
  const after = await free();
  // A file of an older version cannot shrink.
  if (after >= before) return false;
  if (after <= KEPT_FREE_PAGES) await database.executeQuery(PASSIVE_CHECKPOINT);
  return after > KEPT_FREE_PAGES;
}

/** Shrinks the database in small steps while no writes arrive. */
class Shrinking {
  readonly #step: () => Promise<boolean>;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(step: () => Promise<boolean>) {
    this.#step = step;
  }

  /** Postpones the next step, since a write arrived. */
  busy(): void {
    if (this.#isClosed) return;
    if (this.#timer === undefined) this.#arm(IDLE_MS);
    else this.#timer.refresh();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  #arm(ms: number): void {
    this.#timer = setTimeout(async () => {
      this.#timer = undefined;
      // Writes report a failing disk.
      const hasMore = await this.#step().catch(() => false);
      if (hasMore && !this.#isClosed && this.#timer === undefined) this.#arm(PAUSE_MS);
    }, ms).unref();
  }
}

/**
 * Tracks whether the disk accepts writes. After a refusal it probes every 2 s, since no other write may
 * follow.
 */
class Disk {
  problem: string | null = null;
  readonly #probe: () => Promise<unknown>;
  readonly #notify: (problem: string | null) => void;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(probe: () => Promise<unknown>, tell: (problem: string | null) => void) {
    this.#probe = probe;
    this.#notify = tell;
  }

  took(): void {
    if (this.problem === null) return;
    this.problem = null;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  refused(error: unknown): void {
    if (!(error instanceof ServiceError) || error.code !== 'unavailable') return;
    this.problem = error.message;
    if (this.#isClosed) return;
    this.#timer ??= setTimeout(async () => {
      this.#timer = undefined;
      try {
        await this.#probe();
        this.took();
        if (!this.#isClosed) this.#notify(this.problem);
      } catch (again) {
        this.refused(again);
      }
    }, PROBE_MS).unref();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }
}

/** Collects the answers from one turn of the event loop into one message. */
class Answers {
  readonly #port: MessagePort;
  readonly #disk: Disk;
  readonly #paths: readonly string[];
  #opened: readonly (string | null)[] = [];
  #lost: string | null = null;
  #outcomes: SentOutcome[] = [];

  constructor(port: MessagePort, disk: Disk, paths: readonly string[]) {
    this.#port = port;
    this.#disk = disk;
    this.#paths = paths;
  }

  /** Records the identity of the files. Called when they exist. */
  begin(): void {
    this.#opened = this.#paths.map(fileAt);
  }

  add(outcome: SentOutcome, writes: DurableWrites): void {
    this.#outcomes.push(outcome);
    if (this.#outcomes.length === 1) setImmediate(() => this.flush(writes));
  }

  flush(writes: DurableWrites): void {
    if (this.#outcomes.length === 0) return;
    const lost = this.#whatIsLost();
    const outcomes = lost === null ? this.#outcomes : this.#outcomes.map(([id]) => failed(id, lost));
    const message: FromThread = { outcomes, problem: lost ?? writes.problem() ?? this.#disk.problem };
    this.#outcomes = [];
    this.#port.postMessage(message);
  }

  /**
   * Checks, before each answer, that the files still exist under their names: a write to a deleted file is
   * lost.
   */
  #whatIsLost(): string | null {
    for (const [index, path] of this.#paths.entries()) {
      if (this.#lost === null && fileAt(path) !== this.#opened[index]) this.#lost = lostSentence(path);
    }
    return this.#lost;
  }
}

function failed(id: number, problem: string): SentOutcome {
  return [id, null, sendError(internal(problem))];
}
